"""The gate in CI services: actions and examples fit their schemas, scripts run, and the page is true."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.testing.check_cases import IDENTITY, wider
from tests.testing.command_line import ROOT, shardplan
from tests.testing.external_tools import program
from tests.testing.shown_output import assert_shown, read_examples
from tests.testing.small_documents import GRAPH, written

ACTION = ROOT / "deploy" / "github-action"
EXAMPLES = ROOT / "examples" / "ci"
PAGE = (ROOT / "docs" / "tutorials" / "ci.md").read_text()

# file, schema of check-jsonschema, more of its options
DOCUMENTS: list[tuple[Path, str, tuple[str, ...]]] = [
    (ACTION / "action.yml", "vendor.github-actions", ()),
    (EXAMPLES / "github.yml", "vendor.github-workflows", ()),
    (EXAMPLES / "gitlab.yml", "vendor.gitlab-ci", ("--data-transform", "gitlab-ci")),
]

GH = """#!/usr/bin/env bash
# What GitHub keeps of a pull request's comments, in a folder; speaks as much of `gh api` as is asked here.
method=GET body= path=
while [ $# -gt 0 ]; do
  case $1 in
    api | --paginate | --silent) ;;
    --method) method=$2; shift ;;
    --field) body=${2#body=@}; shift ;;
    --jq) shift ;;
    *) path=$1 ;;
  esac
  shift
done
echo "$method $path" >>"$KEPT/log"
case $method in
  GET) for file in "$KEPT"/[0-9]*; do
    [ -e "$file" ] && [ "$(head -n 1 "$file")" = "$MARK" ] && basename "$file"; done; true ;;
  POST) cp "$body" "$KEPT/$(($(ls "$KEPT" | grep -c '^[0-9]') + 1))" ;;
  PATCH) cp "$body" "$KEPT/$(basename "$path")" ;;
esac
"""


def read(text: str) -> Any:
    """YAML, where a reader is installed."""
    return pytest.importorskip("ruamel.yaml", reason="no YAML reader is installed").YAML(typ="safe").load(text)


@pytest.mark.parametrize(("file", "schema", "options"), DOCUMENTS, ids=lambda part: getattr(part, "name", None))
def test_files_that_a_ci_service_reads_fit_its_schema(file: Path, schema: str, options: tuple[str, ...]) -> None:
    words = [program("check-jsonschema"), "--builtin-schema", schema, *options, str(file)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_action_passes_to_its_scripts_exactly_the_variables_that_they_read() -> None:
    action = read((ACTION / "action.yml").read_text())
    used = set(re.findall(r"inputs\.([a-z-]+)", (ACTION / "action.yml").read_text()))
    assert used == set(action["inputs"])
    scripts = {}
    for step in action["runs"]["steps"]:
        if found := re.search(r"\$ACTION/(\w+\.sh)", step.get("run", "")):
            script = scripts[found[1]] = (ACTION / found[1]).read_text()
            made = {*re.findall(r"^(\w+)=", script, re.MULTILINE), *re.findall(r"(\w+)=\$", script)}
            names = set(re.findall(r"\$\{?(\w+)", script)) - made - {"more", "words"}
            assert {name for name in names if not name.startswith(("GITHUB_", "RUNNER_"))} <= set(step["env"]), names
    assert set(scripts) == {path.name for path in ACTION.glob("*.sh")}
    actions = [step["uses"] for step in action["runs"]["steps"] if "uses" in step]
    assert actions
    assert all(re.fullmatch(r"[\w-]+/[\w/-]+@v\d+", name) for name in actions)


def test_the_workflow_passes_only_inputs_that_the_action_has() -> None:
    action = read((ACTION / "action.yml").read_text())
    workflow = read((EXAMPLES / "github.yml").read_text())
    given = [step["with"] for step in workflow["jobs"]["check"]["steps"] if "github-action" in step["uses"]]
    required = {name for name, each in action["inputs"].items() if each.get("required")}
    assert all(required <= set(each) <= set(action["inputs"]) for each in given)
    assert len(given) == 1


def test_the_pre_commit_hook_is_valid_and_its_example_calls_an_existing_command() -> None:
    (hook,) = read((ROOT / ".pre-commit-hooks.yaml").read_text())
    assert {"id", "name", "entry", "language"} <= set(hook)
    (repository,) = read((EXAMPLES / "pre-commit.yml").read_text())["repos"]
    (used,) = repository["hooks"]
    assert used["id"] == hook["id"]
    options = set(re.findall(r"--[a-z-]+", shardplan(*hook["entry"].split()[1:], "--help").out))
    assert {word for word in used["args"] if word.startswith("--")} <= options
    gitlab = read((EXAMPLES / "gitlab.yml").read_text())["sharding"]["script"][0]
    assert set(re.findall(r"--[a-z-]+", gitlab)) <= options


@pytest.fixture
def runner(tmp_path: Path) -> dict[str, str]:
    """What a runner of GitHub's gives its steps, with a comment of somebody else's on the pull request."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "kept").mkdir()
    written(tmp_path / "kept" / "1", "Looks good to me\n")
    written(tmp_path / "bin" / "gh", GH).chmod(0o755)
    start = f'#!/usr/bin/env bash\nexec {shlex.quote(sys.executable)} -m api "$@"\n'
    written(tmp_path / "bin" / "shardplan", start).chmod(0o755)
    written(tmp_path / "new.json", wider())
    words = ("plan", written(tmp_path / "old.json", GRAPH), "--mesh", "dp=2,tp=4", "--deterministic", "--json")
    assert shardplan(*words, "-o", tmp_path / "plan.json").code == 0
    files = {name: str(tmp_path / name.lower()) for name in ("GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT")}
    told = {"NEW": "new.json", "BASE": "plan.json", "FAIL_ON": "memory>5%", "REPOSITORY": "a/b", "NUMBER": "7"}
    path = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "KEPT": str(tmp_path / "kept")}
    return {**os.environ, **path, **files, **told, "RUNNER_TEMP": str(tmp_path)}


def script(name: str, environment: dict[str, str], **more: str) -> dict[str, str]:
    """Run a script of the action; what it has put out by then."""
    words = ["bash", str(ACTION / name)]
    folder = environment["RUNNER_TEMP"]
    done = subprocess.run(words, cwd=folder, env={**environment, **more}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told = Path(environment["GITHUB_OUTPUT"])
    return dict(line.split("=", 1) for line in told.read_text().splitlines()) if told.exists() else {}


@pytest.mark.slow
def test_the_action_checks_and_keeps_one_comment_up_to_date(runner: dict[str, str]) -> None:
    kept = Path(runner["KEPT"])
    told = script("check.sh", runner, ARGUMENTS="--detailed-exitcode")
    assert told["exit-code"] == "3"
    report = Path(told["report"])
    assert json.loads((report / "report.json").read_text())["exceeded"]
    assert json.loads((report / "report.sarif").read_text())["version"] == "2.1.0"
    assert "exceeded" in Path(runner["GITHUB_STEP_SUMMARY"]).read_text()
    script("comment.sh", runner, REPORT=str(report))
    assert (kept / "2").read_text() == (report / "report.md").read_text()
    told = script("check.sh", runner, FAIL_ON="memory>1GiB")
    assert told["exit-code"] == "2"
    script("comment.sh", runner, REPORT=told["report"])
    assert "within 1 limit" in (kept / "2").read_text()
    assert (kept / "1").read_text() == "Looks good to me\n"
    assert (kept / "log").read_text().splitlines() == [
        "GET repos/a/b/issues/7/comments",
        "POST repos/a/b/issues/7/comments",
        "GET repos/a/b/issues/7/comments",
        "PATCH repos/a/b/issues/comments/2",
    ]


def test_the_action_reports_an_error_and_writes_no_comment(runner: dict[str, str]) -> None:
    told = script("check.sh", runner, BASE="missing.json")
    assert told["exit-code"] == "1"
    assert "neither a file nor a revision" in (Path(told["report"]) / "error.txt").read_text()
    script("comment.sh", runner, REPORT=told["report"])
    assert not (Path(runner["KEPT"]) / "log").exists()


@pytest.mark.slow
def test_every_command_of_the_page_ends_with_the_code_that_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    subprocess.run(["git", "init", "--quiet"], check=True)
    (acknowledged,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    written(tmp_path / "waivers.toml", acknowledged)
    examples = read_examples(PAGE)
    assert any(example.shown for example in examples)
    for example in examples:
        printed = "".join(map(_run, example.code.splitlines()))
        if example.shown:
            assert_shown(example.shown, printed)


def _run(line: str) -> str:
    """What a command of the page prints, after it ended as the page says."""
    first, *words = shlex.split(line, comments=True)
    if first == "git":
        subprocess.run(["git", *IDENTITY, *words], check=True, capture_output=True)
        return ""
    assert first == "shardplan"
    answer = shardplan(*words)
    code = int(found[1]) if (found := re.search(r"# exit code (\d)", line)) else 0
    assert answer.code == code, (line, answer.out, answer.err)
    return answer.out


@pytest.mark.parametrize("name", re.findall(r"`examples/ci/([\w.-]+)`", PAGE))
def test_every_file_that_the_page_names_is_there(name: str) -> None:
    assert (EXAMPLES / name).is_file()
