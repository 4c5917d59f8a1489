"""Write the bill of materials of the images (CycloneDX 1.6, JSON) from the lock file that they are built from.

The same lock gives the same bytes, without a time or a random number. Hashes are those of every file of a version; an
image contains one of them. `make sbom`, or `python deploy/sbom.py [LOCK] > sbom.json`.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "deploy" / "requirements.lock"
VERSION = re.compile(r'^VERSION = "(\S+)"$', re.MULTILINE)
ENTRY = re.compile(r"^([A-Za-z0-9_.-]+)==(\S+) \\\n((?: +--hash=\S+(?: \\)?\n)+)((?: +#.*\n?)*)", re.MULTILINE)
VIA = re.compile(r"# +(?:via )?([A-Za-z0-9_.-]+)(?: \(.*\))?$", re.MULTILINE)


def bill(lock: str, name: str, version: str) -> dict[str, Any]:
    """Return the document. `name`, `version`: those of this package."""
    found = [(_named(each), *rest) for each, *rest in ENTRY.findall(lock)]
    refs = {each: _purl(each, locked) for each, locked, _, _ in found}
    ours = _purl(name, version)
    needs: dict[str, list[str]] = {ref: [] for ref in (ours, *refs.values())}
    for each, _, _, via in found:
        for user in _users(via):
            needs[refs.get(_named(user), ours)].append(refs[each])
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": _component("application", name, version, "")},
        "components": [_component("library", each, locked, hashes) for each, locked, hashes, _ in found],
        "dependencies": [{"ref": ref, "dependsOn": sorted(used)} for ref, used in sorted(needs.items())],
    }


def _users(comments: str) -> Iterator[str]:
    """Return the packages that depend on a package, from pip-compile's comments; `-c` names a file."""
    for name in VIA.findall(comments):
        if name != "via":
            yield name


def _component(kind: str, name: str, version: str, hashes: str) -> dict[str, Any]:
    purl = _purl(name, version)
    found = [{"alg": "SHA-256", "content": each} for each in re.findall(r"sha256:([0-9a-f]{64})", hashes)]
    told = {"type": kind, "bom-ref": purl, "name": name, "version": version, "purl": purl}
    return {**told, "hashes": found} if found else told


def _purl(name: str, version: str) -> str:
    return f"pkg:pypi/{_named(name)}@{version}"


def _named(name: str) -> str:
    """Return a name in the form in which PEP 503 compares names."""
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else LOCK
    named = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["name"]
    (released,) = VERSION.findall((ROOT / "planner" / "version.py").read_text(encoding="utf-8"))
    json.dump(bill(path.read_text(encoding="utf-8"), named, released), sys.stdout, indent=1)
    sys.stdout.write("\n")
