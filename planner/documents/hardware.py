"""Reads hardware profiles by name or from files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from planner.choose.hardware import Hardware, list_profiles, load_profile, parse_hardware, read_source
from planner.documents.hardware_profile import ProfileDocument
from planner.documents.json_reader import parse_json, read_json
from planner.documents.pipeline_sections import AnyPlanDocument
from planner.documents.schemas import validate_document
from planner.errors import InvalidHardware


def read_hardware(text: str) -> Hardware:
    """Return a profile by name, or from the path of a hardware document. Raises InvalidHardware, InvalidDocument."""
    return parse_hardware(read_profile(text)) if _is_file(text) else load_profile(text)


def read_profile(text: str) -> dict[str, Any]:
    """Return the document of a profile, built in or in a file. Raises InvalidHardware, InvalidDocument."""
    raw = read_json(Path(text)) if _is_file(text) else parse_json(read_source(text).encode(), text)
    document = validate_document(ProfileDocument, raw, text).model_dump(exclude_unset=True)
    try:
        parse_hardware(document)
    except InvalidHardware as error:
        raise error.at(text) from None
    return document


def load_planned_hardware(document: AnyPlanDocument) -> Hardware:
    """Return the profile that a plan was priced with. Raises InvalidHardware where an old plan names an unknown one."""
    recorded = document.hardware
    if recorded.links is None or recorded.tiers is None:
        return load_profile(recorded.name)
    return parse_hardware(recorded.model_dump(exclude_none=False))


def _is_file(text: str) -> bool:
    return text not in list_profiles() and (text.endswith((".json", ".json.gz")) or Path(text).is_file())
