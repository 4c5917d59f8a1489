"""The formats a program can be exported to; the module of each is imported when the format is used."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import NamedTuple

from planner.errors import InvalidRequest, ShardplanError
from planner.ir.program import Program


class ExportFormat(NamedTuple):
    """A format: `module:function` that takes a program, the extra with the packages it needs, and the media type.

    `has_loops`: whether it can express a step of several micro-batches, as one that only gives layouts does.
    """

    target: str
    extra: str | None = None
    media: str = "text/plain"
    has_loops: bool = False

    def write(self, name: str, exported: object) -> str:
        """Return what is exported as text, by the function of the format, which is called `name`.

        Raises InvalidRequest where a package is missing, and what the function raises, with the format's name.
        """
        module, function = self.target.split(":")
        where = f"format {name}"
        try:
            write: Callable[[object], str] = getattr(import_module(module), function)
            return write(exported)
        except ShardplanError as error:
            raise error.at(where) from error
        except ImportError as error:
            wanted = f"shardplan[{self.extra}]"
            raise InvalidRequest("a package is missing", where=where, got=str(error), wanted=wanted) from error


FORMATS = {
    "mesh": ExportFormat("planner.export.mlir.spmd:print_mesh"),
    "shard": ExportFormat("planner.export.mlir.spmd:print_shard"),
    "sdy": ExportFormat("planner.export.sdy:print_sdy"),
    "dtensor": ExportFormat("planner.export.sharding_documents:dtensor_document", "torch", "application/json", True),
    "partition-spec": ExportFormat(
        "planner.export.sharding_documents:partition_spec_document", "jax", "application/json", True
    ),
    "shard-map": ExportFormat("planner.export.shard_map:print_shard_map", "jax", "text/x-python", True),
    "torch": ExportFormat("planner.export.torch_program:print_torch", "torch", "text/x-python", True),
    "model-explorer": ExportFormat(
        "planner.export.model_explorer:print_model_explorer", None, "application/json", True
    ),
}


def export_program(program: Program, name: str) -> str:
    """Return the program as text.

    Raises InvalidRequest for an unknown format or one whose packages are missing, and InvalidSharding for what the
    format cannot express.
    """
    if name not in FORMATS:
        raise InvalidRequest("format", got=name, wanted=f"one of {', '.join(FORMATS)}")
    if program.graph.microbatches > 1 and not FORMATS[name].has_loops:
        able = ", ".join(other for other, row in FORMATS.items() if row.has_loops)
        got = f"a step of {program.graph.microbatches} micro-batches"
        raise InvalidRequest("the format has no loop", where=f"format {name}", got=got, wanted=f"one of {able}")
    return FORMATS[name].write(name, program)
