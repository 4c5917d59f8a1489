"""`python -m planner.documents.export_schemas` writes the JSON Schemas of the documents to planner/schemas/."""

from __future__ import annotations

import json
from pathlib import Path

from planner.documents.schemas import SCHEMAS, json_schema

SCHEMA_FOLDER = Path(__file__).resolve().parents[1] / "schemas"


def published_schema(name: str) -> str:
    """Return the text of a published JSON Schema."""
    return json.dumps(json_schema(name), indent=1, sort_keys=True) + "\n"


def main() -> None:
    """Write every schema."""
    SCHEMA_FOLDER.mkdir(exist_ok=True)
    for name in SCHEMAS:
        (SCHEMA_FOLDER / f"{name}.json").write_text(published_schema(name), encoding="utf-8")


if __name__ == "__main__":
    main()
