"""One call of the dialect as MLIR text, in both spellings, and mlir-opt's verdict on it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from typing import Any, NamedTuple

from planner.spmd import LocalType

VERSIONS = {19: "mlir-opt-19", 22: "mlir-opt-22"}
_FUNCTIONAL = ("broadcast", "gather", "reduce", "scatter", "send", "recv")
_QUERIES = ("mesh_shape", "process_multi_index", "process_linear_index")
_ELEMENT = {"bool": "i1", "u8": "i8"}


class Case(NamedTuple):
    """A call on mesh @m: operand types, result types (None: inferred), attributes."""

    mesh: str
    op: str
    operands: tuple[LocalType, ...]
    results: tuple[LocalType, ...] | None
    attrs: dict[str, Any]


def missing(version: int) -> str | None:
    """Return why the tool cannot be run, None if it can."""
    return None if shutil.which(VERSIONS[version]) else f"{VERSIONS[version]} is not installed"


def accepted(cases: Sequence[Case], version: int) -> list[bool]:
    """Return whether mlir-opt accepts each case."""
    text = "\n// -----\n".join(module(case, number, version) for number, case in enumerate(cases))
    done = subprocess.run(
        [VERSIONS[version], "--split-input-file"],
        input=text,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "LLVM_DISABLE_SYMBOLIZATION": "1"},
    )
    assert done.returncode in (0, 1), done.stderr[-2000:]
    printed = {int(number) for number in re.findall(r"@case(\d+)\b", done.stdout)}
    return [number in printed for number in range(len(cases))]


def module(case: Case, number: int, version: int) -> str:
    arguments = ", ".join(f"%a{place}: {_type(kind)}" for place, kind in enumerate(case.operands))
    assert case.results is not None, case
    results = ", ".join(map(_type, case.results))
    text = f"mesh.mesh @m(shape = {case.mesh})\nfunc.func @case{number}({arguments}) {{\n  {_call(case)}\n  return\n}}"
    if version >= 22:
        spelled = (("mesh.mesh @", "shard.grid @"), ("mesh.mesh_shape", "shard.grid_shape"), ("mesh.", "shard."))
        for old, new in (*spelled, ("mesh_axes", "grid_axes")):
            text = text.replace(old, new)
        text = re.sub(r"reduction = <(\w+)>", r"reduction = \1", text)
    assert results
    return text


def _call(case: Case) -> str:
    attrs = dict(case.attrs)
    mesh, operands = attrs.pop("mesh", "m"), list(range(len(case.operands)))
    scalars = iter(operands[1:])
    shown = " ".join(_attribute(key, value, scalars) for key, value in attrs.items())
    made, count = ", ".join(map(_type, case.results or ())), len(case.results or ())
    left = f"%0:{count}" if count > 1 else "%0"
    if case.op in _QUERIES:
        on = "" if case.op == "mesh_shape" else "on "
        return f"{left} = mesh.{case.op} {on}@{mesh} {shown} : {made}"
    read = ", ".join(map(_type, case.operands))
    kinds = f"({read}) -> {made}" if case.op in _FUNCTIONAL else f"{read} -> {made}"
    return f"{left} = mesh.{case.op} %a0 on @{mesh} {shown} : {kinds}"


def _attribute(key: str, value: Any, scalars: Any) -> str:
    if key == "reduction":
        return f"reduction = <{value}>"
    if key == "rotate":
        return "rotate" if value else ""
    if isinstance(value, (list, tuple)):
        return f"{key} = [{', '.join(f'%a{next(scalars)}' if each is None else str(each) for each in value)}]"
    return f"{key} = {value}"


def _type(kind: LocalType) -> str:
    if kind.dtype == "index":
        return "index"
    dims = "".join(f"{'?' if dim is None else dim}x" for dim in kind.shape)
    return f"tensor<{dims}{_ELEMENT.get(kind.dtype, kind.dtype)}>"
