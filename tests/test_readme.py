"""Figures in README and in the documentation's tables equal the committed results; commands and Python run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from benchmarks.pages import list_tables, render_table
from benchmarks.readme_table import table
from tests.testing.command_line import shardplan
from tests.testing.shown_output import assert_shown, read_examples

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
MAX_LINES = 150
MAX_PICTURE_BYTES = 200_000
TABLES = list(list_tables())
PATH = re.compile(r"`((?:planner|solvers|api|tests|benchmarks|deploy|examples|docs)/[\w/.*-]+)`")


@pytest.mark.parametrize(("name", "text"), [(name, text) for _, name, text in TABLES], ids=[row[1] for row in TABLES])
def test_every_table_is_the_committed_result(name: str, text: str) -> None:
    assert text == render_table(name)


def test_every_result_that_has_a_table_is_on_a_page() -> None:
    begun = "".join(page.read_text() for page in (ROOT / "docs" / "benchmarks").glob("*.md")).count("<!-- ")
    assert begun == 2 * len(TABLES)
    results = {path.stem for path in (ROOT / "benchmarks" / "results").glob("*.json")}
    scripts = {path.stem for path in (ROOT / "benchmarks").glob("*.py") if "\ndef table(result" in path.read_text()}
    assert {name for _, name, _ in TABLES} == results & scripts


def test_the_readme_s_figures_are_those_of_committed_results() -> None:
    assert f"<!-- readme_table -->\n{table()}\n\n<!-- /readme_table -->\n" in README


def test_the_readme_is_short_and_its_picture_small() -> None:
    assert len(README.splitlines()) <= MAX_LINES
    assert (ROOT / "docs" / "images" / "report.png").stat().st_size < MAX_PICTURE_BYTES


def test_every_command_runs_in_the_order_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [line for each in read_examples(README) if each.language == "sh" for line in each.code.splitlines()]
    commands = [shlex.split(line, comments=True) for line in lines if line.startswith("shardplan")]
    assert len(commands) == 5
    monkeypatch.chdir(tmp_path)
    for _, *words in commands:
        answer = shardplan(*words)
        assert answer.code == 0, (words, answer.err)


def test_the_python_prints_what_the_page_shows(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (example,) = [each for each in read_examples(README) if each.language == "python"]
    assert example.shown
    monkeypatch.chdir(ROOT)
    exec(example.code, {"__name__": "__main__"})
    assert_shown(example.shown, capsys.readouterr().out)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_path_named_exists(page: Path) -> None:
    for target in PATH.findall(page.read_text()):
        assert list(ROOT.glob(target)), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_to_a_file_has_one(page: Path) -> None:
    """Pages that are written at build time are checked by `make docs`, which is strict."""
    for target in re.findall(r"\]\((?!https?:|#)([^)#\s]+)", page.read_text()):
        path = (page.parent / target).resolve()
        assert path.exists() or path.is_relative_to(ROOT / "docs" / "reference"), target
