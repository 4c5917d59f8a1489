"""The languages a program can be written in, each made by its module when it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import NamedTuple

from planner.errors import InvalidRequest
from planner.model.program import Program


class Home(NamedTuple):
    """`module:function` that takes a program, the extra whose packages it needs, and what the text is."""

    place: str
    extra: str | None = None
    media: str = "text/plain"


FORMATS = {
    "mesh": Home("planner.export.mlir.programs:print_mesh"),
    "shard": Home("planner.export.mlir.programs:print_shard"),
    "sdy": Home("planner.export.sdy:print_sdy"),
    "dtensor": Home("planner.export.documents:dtensor_document", "torch", "application/json"),
    "partition-spec": Home("planner.export.documents:partition_spec_document", "jax", "application/json"),
    "shard-map": Home("planner.export.shard_map:print_shard_map", "jax", "text/x-python"),
    "model-explorer": Home("planner.export.model_explorer:print_model_explorer", None, "application/json"),
}


def exported(program: Program, name: str) -> str:
    """The program as text. Raises InvalidRequest for an unknown format or one whose packages are not there,
    InvalidSharding for what it has no words for."""
    if name not in FORMATS:
        raise InvalidRequest("format", got=name, wanted=f"one of {', '.join(FORMATS)}")
    module, function = FORMATS[name].place.split(":")
    try:
        write: Callable[[Program], str] = getattr(import_module(module), function)
        return write(program)
    except ImportError as error:
        wanted = f"shardplan[{FORMATS[name].extra}]"
        raise InvalidRequest("a package is missing", where=f"format {name}", got=str(error), wanted=wanted) from error
