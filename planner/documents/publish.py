"""`python -m planner.documents.publish` writes the JSON Schemas of the documents to planner/schemas/."""

from __future__ import annotations

import json
from pathlib import Path

from planner.documents.schemas import SCHEMAS, json_schema

FOLDER = Path(__file__).resolve().parents[1] / "schemas"


def published(name: str) -> str:
    """The text of a published JSON Schema."""
    return json.dumps(json_schema(name), indent=1, sort_keys=True) + "\n"


def main() -> None:
    """Write every schema."""
    FOLDER.mkdir(exist_ok=True)
    for name in SCHEMAS:
        (FOLDER / f"{name}.json").write_text(published(name), encoding="utf-8")


if __name__ == "__main__":
    main()
