"""The demo finds a plan that no standard layout matches, prints it, writes its report, and says what to try next."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from api.cli.demo import compare_with_standard, describe_activation, write_report
from tests.testing.command_line import Answer, child, refused, shardplan
from tests.testing.small_documents import GRAPH, written

# The commands that the demo ends with, and the processor seconds it may take (20 s on two cores).
NEXT = ["import", "plan", "explain"]
CPU_SECONDS = 40

# standard layouts as (name, step, fits), what is said of them beside a plan of one second
COMPARED = [
    ([("DPxTP", 1.5, False)], "No standard layout fits."),
    ([("DPxTP", 1.0, True), ("FSDP", 2.0, True)], "The answer is a standard layout: DPxTP."),
    (
        [("DPxTP", 1.5, True), ("FSDP", 2.0, True)],
        "No standard layout is the answer: DPxTP, the best that fits, takes 1.50 times as long.",
    ),
    (
        [("DPxTP", 1.5, True), ("FSDP", 0.5, False)],
        "No standard layout is the answer: DPxTP, the best that fits, takes 1.50 times as long; FSDP does not fit.",
    ),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("a folder with spaces")


@pytest.fixture(scope="module")
def demo(folder: Path) -> Answer:
    """The slowest run here: GPT-2 small, solved to half a percent."""
    answer = child("demo", folder=folder)
    assert (answer.code, answer.err) == (0, "")
    assert answer.cpu_s < CPU_SECONDS
    return answer


def test_the_demo_prints_its_question_and_counted_collectives(demo: Answer) -> None:
    assert demo.out.startswith("The question: ")
    assert "No standard layout is the answer: " in demo.out
    assert re.search(r"^all [1-9]\d* ", demo.out, re.MULTILINE)
    assert re.search(r"proven not below .* \(gap 0\.\d+ %, gap proven\)", demo.out)
    (counted, predicted) = re.findall(r"bytes received per device: counted (\d+), predicted (\d+)", demo.out)[0]
    assert int(counted) == int(predicted) > 0
    assert "verdict: equal to the unsharded model on 8 devices" in demo.out


def test_the_demo_writes_a_report_and_says_where(demo: Answer, folder: Path) -> None:
    page = folder / "shardplan-demo.html"
    assert f"\nThe report, for a browser: {page}\n" in demo.out
    assert '"verdict":{"verdict":"equal"' in page.read_text()


def test_the_commands_that_the_demo_suggests_run(demo: Answer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    commands = [shlex.split(line) for line in demo.out.splitlines()[-3:]]
    assert [words[:2] for words in commands] == [["shardplan", name] for name in NEXT]
    for words in commands:
        answer = shardplan(*words[1:])
        assert answer.code == 0, (words, answer.err)


def test_the_demo_goes_on_where_the_report_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cannot even by root, who may write into folders that are read-only: a folder has the report's name."""
    graph, plan = written(tmp_path / "g.json", GRAPH), tmp_path / "plan.json"
    assert shardplan("plan", graph, "--mesh", "2x4", "-o", plan).code == 0
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shardplan-demo.html").mkdir()
    said = write_report(json.loads(plan.read_text()), None)
    assert said.startswith("The report is not written: shardplan-demo.html: cannot be written (got Is a directory; ")
    assert "`shardplan demo -o FILE.html`" in said


def test_an_invalid_place_for_the_report_is_refused_at_once(tmp_path: Path) -> None:
    refused(shardplan("demo", "-o", tmp_path / "missing" / "page.html"), "cannot be written")


@pytest.mark.parametrize(("layouts", "said"), COMPARED)
def test_standard_layouts_are_compared_with_the_plan_in_words(
    layouts: list[tuple[str, float, bool]], said: str
) -> None:
    baselines = [{"name": name, "step_s": step, "fits": fits} for name, step, fits in layouts]
    assert compare_with_standard({"solver": {"objective_s": 1.0}, "baselines": baselines}) == said


def test_activation_is_explained_only_where_the_environment_is_not_active(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / "an environment" / "bin"
    programs.mkdir(parents=True)
    written(programs / "activate", "")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert describe_activation(programs.parent) == ", after `. 'an environment/bin/activate'`"
    assert describe_activation(tmp_path) == ""
    written(programs / "shardplan", "").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs))
    assert describe_activation(programs.parent) == ""
