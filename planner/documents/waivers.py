"""Acknowledged rises, from a TOML file that lives in the repository beside what it is about.

[[waiver]]
limit = "time[h.0.mlp]"       # as `--fail-on` writes it, without the amount
up_to = "12%"
reason = "the wider layer is wanted"
expires = 2027-03-31          # the last day on which it holds
"""

from __future__ import annotations

import tomllib
from datetime import date
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from planner.documents.json_reader import read_text
from planner.documents.schemas import validate_document
from planner.documents.strict_model import Id, StrictModel
from planner.errors import InvalidDocument
from planner.judge.check.limits import parse_limits
from planner.judge.check.verdict import Waiver


class WaiverDocument(StrictModel):
    """One rise, who answers for it being the file's history."""

    limit: Id
    up_to: Id
    reason: Id
    expires: date


class WaiversDocument(StrictModel):
    """A file of them."""

    waiver: Annotated[list[WaiverDocument], Field(max_length=1000)] = Field(default=[])


def read_waivers(path: Path) -> list[Waiver]:
    """Those in a file. Raises InvalidDocument, InvalidRequest with the entry and key that is wrong."""
    document = validate_document(WaiversDocument, _parse_toml(path), str(path))
    return [_load_waiver(entry, f"{path}: waiver[{k}]") for k, entry in enumerate(document.waiver)]


def _parse_toml(path: Path) -> Any:
    try:
        return tomllib.loads(read_text(path))
    except tomllib.TOMLDecodeError as error:
        raise InvalidDocument("not TOML", where=str(path), got=str(error), wanted="[[waiver]] tables") from None


def _load_waiver(entry: WaiverDocument, where: str) -> Waiver:
    found = parse_limits(f"{entry.limit}>{entry.up_to}", f"{where}: limit>up_to")
    if len(found) != 1:
        raise InvalidDocument("several limits", where=where, got=entry.limit, wanted="a table for each")
    return Waiver(found[0], entry.reason, entry.expires)
