"""The built release; `python -m deploy.check_wheel` also installs it and uses it."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from deploy.check_wheel import (
    CheckFailed,
    Stage,
    build_sdist_and_wheel,
    check_contents,
    check_metadata,
    contents,
    rebuild_from_sdist,
)
from planner.version import VERSION

METADATA = f"shardplan-{VERSION}.dist-info/METADATA"

# what is done to a sound wheel's files, by the check that has to see it
DAMAGES: list[tuple[Callable[[Stage], None], str, bytes | None]] = [
    (check_contents, "api/examples/gpt2.json.gz", None),
    (check_contents, "planner/py.typed", None),
    (check_contents, "solvers/problem.py", None),
    (check_contents, "tests/test_architecture.py", b""),
    (
        check_metadata,
        f"shardplan-{VERSION}.dist-info/METADATA",
        b"Metadata-Version: 2.4\nName: shardplan\nVersion: 0.0.1\n",
    ),
]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    stage = Stage(tmp_path_factory.mktemp("a release"))
    build_sdist_and_wheel(stage)
    return stage


def test_the_sdist_builds_the_same_wheel(stage: Stage) -> None:
    rebuild_from_sdist(stage)


def test_the_wheel_is_complete(stage: Stage) -> None:
    check_contents(stage)
    check_metadata(stage)


@pytest.mark.parametrize(("check", "name", "content"), DAMAGES)
def test_a_damaged_wheel_is_detected(
    check: Callable[[Stage], None], name: str, content: bytes | None, stage: Stage, tmp_path: Path
) -> None:
    files = {**contents(stage.wheel), name: content}
    (tmp_path / "dist").mkdir()
    with zipfile.ZipFile(tmp_path / "dist" / stage.wheel.name, "w") as archive:
        for each, data in files.items():
            if data is not None:
                archive.writestr(each, data)
    with pytest.raises(CheckFailed):
        check(Stage(tmp_path))
