"""Hardware profiles by name or from files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from planner.choose.hardware import Hardware, hardware_of, load, names, source_text
from planner.documents.profiles import ProfileDocument
from planner.documents.reading import parse_json, read_json
from planner.documents.schemas import PlanDocument, checked
from planner.errors import InvalidHardware


def read_hardware(text: str) -> Hardware:
    """A profile by its name, or from the path of a hardware document. Raises InvalidHardware, InvalidDocument."""
    return hardware_of(profile_document(text)) if _is_file(text) else load(text)


def profile_document(text: str) -> dict[str, Any]:
    """The document of a profile, built in or in a file. Raises InvalidHardware, InvalidDocument."""
    raw = read_json(Path(text)) if _is_file(text) else parse_json(source_text(text).encode(), text)
    document = checked(ProfileDocument, raw, text).model_dump(exclude_unset=True)
    try:
        hardware_of(document)
    except InvalidHardware as error:
        raise error.at(text) from None
    return document


def planned_hardware(document: PlanDocument) -> Hardware:
    """The profile that a plan was priced with. Raises InvalidHardware where an old plan names one not built in."""
    known = document.hardware
    if known.links is None or known.tiers is None:
        return load(known.name)
    return hardware_of(known.model_dump(exclude_none=False))


def _is_file(text: str) -> bool:
    return text not in names() and (text.endswith((".json", ".json.gz")) or Path(text).is_file())
