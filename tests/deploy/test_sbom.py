"""The bill of materials has every package of the lock file, and is CycloneDX."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
LOCK = ROOT / "deploy" / "requirements.lock"


@pytest.fixture(scope="module")
def text() -> str:
    return subprocess.run(
        [sys.executable, ROOT / "deploy" / "sbom.py"], capture_output=True, text=True, check=True
    ).stdout


@pytest.fixture(scope="module")
def bill(text: str) -> Any:
    return json.loads(text)


def test_the_bill_of_materials_is_cyclonedx(text: str) -> None:
    validation = pytest.importorskip("cyclonedx.validation.json", reason="cyclonedx-python-lib is not installed")
    version = pytest.importorskip("cyclonedx.schema").SchemaVersion.V1_6
    assert validation.JsonStrictValidator(version).validate_str(text) is None


def test_every_locked_version_is_there_with_its_hashes(bill: Any) -> None:
    lock = LOCK.read_text()
    named = [f"{each['name']}=={each['version']}" for each in bill["components"]]
    assert named == re.findall(r"^([a-z0-9_.-]+==\S+) \\$", lock, re.MULTILINE)
    listed = [each["content"] for component in bill["components"] for each in component["hashes"]]
    assert listed == re.findall(r"--hash=sha256:(\w+)", lock)


def test_every_component_is_needed_by_our_package(bill: Any) -> None:
    """By following what each needs from our own package on, all is reached."""
    needs = {each["ref"]: each["dependsOn"] for each in bill["dependencies"]}
    reached, ahead = set(), [bill["metadata"]["component"]["bom-ref"]]
    while ahead:
        at = ahead.pop()
        if at not in reached:
            reached.add(at)
            ahead += needs[at]
    assert reached == set(needs)
    assert reached >= {each["bom-ref"] for each in bill["components"]}
