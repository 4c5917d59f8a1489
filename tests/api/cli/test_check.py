"""`check` as CI runs it: where a base comes from, exit codes, reports, and one clear message for what is wrong."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from planner.documents.json_reader import read_json
from tests.testing.check_cases import IDENTITY, NEVER, wider
from tests.testing.command_line import refused, shardplan
from tests.testing.plan_versions import OLDER, by_an_older_version
from tests.testing.small_documents import GRAPH, written


def git(folder: Path, *words: str) -> None:
    subprocess.run(["git", "-C", str(folder), *IDENTITY, *words], check=True, capture_output=True)


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with a model, its plan, and the model as somebody made it wider."""
    folder = tmp_path_factory.mktemp("team")
    model = written(folder / "model.json", GRAPH)
    options = ("--mesh", "dp=2,tp=4", "--deterministic", "--json", "-o", folder / "plan.json.gz")
    assert shardplan("plan", model, *options).code == 0
    git(folder, "init", "--quiet")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "a model and its plan")
    written(folder / "model.json", wider())
    return folder


def check(team: Path, *words: object, base: object = None) -> Any:
    return shardplan("check", team / "model.json", "--base", base or team / "plan.json.gz", *words)


# limits, more arguments, exit code
CODES = [
    ("memory>5%", (), 3),
    ("memory>1GiB", (), 0),
    ("memory>1GiB", ("--detailed-exitcode",), 2),
    ("memory>5%", ("--detailed-exitcode",), 3),
    ("", (), 0),
]


@pytest.mark.parametrize(("limits", "more", "code"), CODES)
def test_the_exit_code_says_whether_limits_are_exceeded(
    limits: str, more: tuple[str, ...], code: int, team: Path
) -> None:
    answer = check(team, "--fail-on", limits, "--json", *more)
    assert answer.code == code, answer.err
    assert {"changes", "totals", "exceeded"} <= set(answer.json)
    assert bool(answer.json["exceeded"]) is (code == 3)


def test_an_equal_graph_ends_with_0_in_detail_too(team: Path, tmp_path: Path) -> None:
    other = written(tmp_path / "renamed.json", json.loads(json.dumps(GRAPH).replace('"a"', '"other"')))
    answer = shardplan("check", other, "--base", team / "plan.json.gz", "--detailed-exitcode")
    assert answer.code == 0
    assert "the graph equals its base" in answer.out


def test_reports_are_written_all_at_once_and_the_plan_becomes_the_next_base(team: Path, tmp_path: Path) -> None:
    names = {"--markdown": "r.md", "--junit": "r.xml", "--sarif": "r.sarif", "--output": "next.json"}
    words = [word for option, name in names.items() for word in (option, tmp_path / name)]
    assert check(team, "--fail-on", "memory>5%", *words).code == 3
    assert all((tmp_path / name).stat().st_size for name in names.values())
    answer = check(team, "--detailed-exitcode", "--json", base=tmp_path / "next.json")
    assert (answer.code, answer.json["graphs_equal"]) == (0, True)


def test_a_base_of_an_older_version_is_planned_again_and_both_versions_are_named(team: Path, tmp_path: Path) -> None:
    older = written(tmp_path / "older.json", by_an_older_version(read_json(team / "plan.json.gz")))
    kept, told = (check(team, "--fail-on", "memory>5%", "--json", base=base) for base in (None, older))
    assert told.code == kept.code == 3
    assert (told.json["totals"], told.json["exceeded"]) == (kept.json["totals"], kept.json["exceeded"])
    assert told.json["replanned"][0]["recorded"]["versions"] == OLDER
    page = " ".join(check(team, base=older).out.split())
    assert "The base was planned by another version: cost_model 4, solver 1; this is cost_model" in page
    answer = shardplan("diff", older, team / "plan.json.gz")
    assert "planned by different versions: the base by cost_model 4, solver 1" in " ".join(answer.out.split())
    words = ("--base", older, "-o", tmp_path / "next.json", "--json")
    same = shardplan("check", written(tmp_path / "same.json", GRAPH), *words)
    assert (same.code, same.json["graphs_equal"], same.json["exceeded"]) == (0, True, [])
    assert read_json(tmp_path / "next.json")["id"] == read_json(team / "plan.json.gz")["id"], "the next base is current"


# base, more arguments
BASES = [("HEAD", ("--mesh", "dp=2,tp=4")), ("HEAD:plan.json.gz", ()), ("HEAD:./model.json", ("--mesh", "dp=2,tp=4"))]


@pytest.mark.parametrize(("base", "more"), BASES)
def test_a_base_may_be_a_revision(base: str, more: tuple[str, ...], team: Path) -> None:
    kept = check(team, "--fail-on", "memory>5%", "--json").json
    told = check(team, "--fail-on", "memory>5%", "--json", *more, base=base).json
    assert (told["totals"], told["exceeded"]) == (kept["totals"], kept["exceeded"])


ENTRY = '[[waiver]]\nlimit = "memory"\nup_to = "1000000%"\nreason = "wanted"\nexpires = 2999-01-01\n'


def test_a_rise_is_waived_in_a_file(team: Path, tmp_path: Path) -> None:
    file = written(tmp_path / "waivers.toml", ENTRY)
    answer = check(team, "--fail-on", "memory>5%", "--waivers", file, "--json")
    assert answer.code == 0
    assert answer.json["waived"][0]["waiver"]["reason"] == "wanted"
    written(file, ENTRY.replace("2999", "2020"))
    answer = check(team, "--fail-on", "memory>5%", "--waivers", file)
    assert answer.code == 3
    assert "expired on 2020-01-01: renew it" in answer.out


# what is wrong with the file, words
FILES = [
    ("nonsense", "not TOML"),
    (ENTRY.replace("reason", "because"), "missing key"),
    (ENTRY + "owner = 1\n", "waiver[0].owner: unknown key"),
    (
        ENTRY.replace('limit = "memory"', 'limit = "speed"'),
        "waiver[0]: limit>up_to, character 1: unknown measure",
    ),
    (ENTRY.replace('"1000000%"', '"much"'), "a number with %"),
    (ENTRY.replace("2999-01-01", '"2999-01-01"'), "waiver[0].expires: value does not fit"),
    (ENTRY.replace("2999-01-01", "2999-01-01T10:00:00"), "waiver[0].expires: value does not fit"),
    (ENTRY.replace('"1000000%"', '"1%,time>5%"'), "several limits"),
]


@pytest.mark.parametrize(("text", "words"), FILES)
def test_a_file_of_waivers_that_is_wrong_is_refused(text: str, words: str, team: Path, tmp_path: Path) -> None:
    refused(check(team, "--waivers", written(tmp_path / "waivers.toml", text)), words)


# base, arguments, words of the one message
REFUSED: list[tuple[str, tuple[str, ...], str]] = [
    ("no-such-branch", (), "neither a file nor a revision"),
    ("HEAD:nothing.json", (), "no such file at that revision"),
    ("--all", (), "no base"),
    ("HEAD", (), "no mesh to plan on"),
    ("HEAD", ("--hardware", "cpu"), "go with --mesh"),
    ("HEAD:plan.json.gz", ("--mesh", "2x4"), "a mesh beside a plan"),
    (NEVER, (), "a plan id without a server"),
    (NEVER, ("--server", "plans.example"), "http://… or https://…"),
    (NEVER, ("--server", "http://127.0.0.1:9"), "the server cannot be reached"),
    ("HEAD:plan.json.gz", ("--fail-on", "time>5"), "--fail-on, character 7: amount"),
    ("HEAD:plan.json.gz", ("--fail-on", "time[no.such]>5%"), "no such place"),
    ("HEAD:plan.json.gz", ("--markdown", "/no/such/folder/x.md"), "cannot be written"),
]


@pytest.mark.parametrize(("base", "more", "words"), REFUSED)
def test_an_error_is_one_message(base: str, more: tuple[str, ...], words: str, team: Path) -> None:
    refused(check(team, *more, base=base), words)


def test_a_base_beside_no_repository_or_without_git_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = written(tmp_path / "model.json", GRAPH)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    refused(shardplan("check", model, "--base", "HEAD"), "not a git repository")
    monkeypatch.setenv("PATH", str(tmp_path))
    refused(shardplan("check", model, "--base", "HEAD"), "git is not installed")
    refused(shardplan("check", model), "--base")


def test_plans_of_different_meshes_are_refused(team: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    assert shardplan("plan", team / "model.json", "--mesh", "dp=8", "--json", "-o", other).code == 0
    refused(shardplan("check", other, "--base", team / "plan.json.gz"), "plans of another mesh cannot be compared")
    written(other, {"format": "shardplan.mesh"})
    refused(shardplan("check", other, "--base", team / "plan.json.gz"), "neither plan nor graph")
