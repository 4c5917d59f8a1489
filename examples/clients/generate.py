"""A typed Python client, generated from the service's own description; whatever the generator warns of is an error.

`make client` installs the generator into an environment of its own and writes `build/client`. The client sends graph
documents; models in other tools' forms (StableHLO, ONNX) are bytes, for which any HTTP client will do. It needs httpx,
attrs and python-dateutil.

    python -m examples.clients.generate FOLDER
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from api.http.app import create_app
from api.jobs.worker_process import WorkerProcesses
from api.service import Service
from api.settings import Settings

PROGRAM = "openapi-python-client"
ROOT = Path(__file__).resolve().parents[2]
PLACES = os.pathsep.join(
    [str(ROOT / "build" / "generator" / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]]
)
"""Where the generator is looked for; it finds ruff, which formats what it wrote, there too."""


def description(folder: Path) -> dict[str, Any]:
    """The service's OpenAPI document, with bodies as JSON only; `folder` gets an empty database."""
    service = Service(Settings(f"sqlite:///{folder / 'service.db'}"), WorkerProcesses())
    found = create_app(service).openapi()
    service.store.close()
    for operations in found["paths"].values():
        for operation in operations.values():
            content = operation.get("requestBody", {}).get("content", {})
            for kind in content.keys() - {"application/json"}:
                del content[kind]
    _spell_out(found)
    return found


def _spell_out(described: Any) -> None:
    """One of several that is one word (`const`) as a list of one (`enum`): the generator takes no others beside the
    first."""
    for each in described.values() if isinstance(described, dict) else described:
        if isinstance(each, dict | list):
            _spell_out(each)
    if isinstance(described, dict):
        for choice in described.get("anyOf", ()):
            if "const" in choice:
                choice["enum"] = [choice.pop("const")]


def program() -> str | None:
    """The generator, where it is installed."""
    return shutil.which(PROGRAM, path=PLACES)


def generate(target: Path) -> None:
    """Write the package. Raises CalledProcessError where the generator fails or warns, its words printed."""
    with tempfile.TemporaryDirectory() as folder:
        document = Path(folder) / "openapi.json"
        document.write_text(json.dumps(description(Path(folder))), encoding="utf-8")
        words = [program() or PROGRAM, "generate", "--path", str(document), "--output-path", str(target)]
        options = ["--meta", "none", "--overwrite", "--fail-on-warning"]
        subprocess.run([*words, *options], check=True, env={**os.environ, "PATH": PLACES})


if __name__ == "__main__":
    generate(Path(sys.argv[1]))
