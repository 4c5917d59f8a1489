"""`python -m planner.documents.export_schemas` writes the JSON Schemas of the documents to planner/schemas/."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from planner.documents.hardware_profile import ProfileDocument
from planner.documents.pipeline_sections import PipelineDocument
from planner.documents.proof_sections import ProofDocument
from planner.documents.schemas import GraphDocument, MeshDocument, PinsDocument, PlanDocument
from planner.documents.strict_model import StrictModel

SCHEMA_FOLDER = Path(__file__).resolve().parents[1] / "schemas"
SCHEMAS: dict[str, type[StrictModel]] = {
    "graph": GraphDocument,
    "hardware": ProfileDocument,
    "mesh": MeshDocument,
    "pins": PinsDocument,
    "pipeline": PipelineDocument,
    "plan": PlanDocument,
    "proof": ProofDocument,
}


def json_schema(name: str) -> dict[str, Any]:
    """Return the JSON Schema of a kind of document."""
    schema = SCHEMAS[name].model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


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
