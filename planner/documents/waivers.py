"""Waivers of rises, in a TOML file in the repository that they apply to.

[[waiver]]
limit = "time[h.0.mlp]"       # as in `--fail-on`, without the amount
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
    """One accepted rise; the file's history shows who accepted it."""

    limit: Id
    up_to: Id
    reason: Id
    expires: date


class WaiversDocument(StrictModel):
    """A file of waivers."""

    waiver: Annotated[list[WaiverDocument], Field(max_length=1000)] = Field(default=[])


def read_waivers(path: Path) -> list[Waiver]:
    """Return the waivers in a file. Raises InvalidDocument, InvalidRequest with the entry and key that is wrong."""
    document = validate_document(WaiversDocument, _parse_toml(path), str(path))
    return [_load_waiver(entry, f"{path}: waiver[{k}]") for k, entry in enumerate(document.waiver)]


def _parse_toml(path: Path) -> Any:
    try:
        return tomllib.loads(read_text(path))
    except tomllib.TOMLDecodeError as error:
        raise InvalidDocument("not TOML", where=str(path), got=str(error), wanted="[[waiver]] tables") from None


def _load_waiver(entry: WaiverDocument, where: str) -> Waiver:
    limits = parse_limits(f"{entry.limit}>{entry.up_to}", f"{where}: limit>up_to")
    if len(limits) != 1:
        raise InvalidDocument("several limits in one waiver", where=where, got=entry.limit, wanted="a waiver per limit")
    return Waiver(limits[0], entry.reason, entry.expires)
