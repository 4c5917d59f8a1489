"""What a program moves and holds while it runs on one process, counted as torch dispatches its ops.

With SHARDPLAN_TRACE=1 in the environment the functions of an exported or parallelized program are followed line by
line. Each line is a `record_function` scope with the name of the plan's op, or of the value that a collective makes, so
that a profiler's trace has the plan's names. The bytes of a collective are those that a process receives by the ring's
formulas, of the tensors that torch's collective is called with; memory is that of all storages that are alive, a
function's arguments included. A collective is waited for in its line. A value with a NaN ends the run on every
process. What torch.compile has made runs uncompiled in the whole process, so that it is followed.
"""

from __future__ import annotations

import json
import linecache
import re
import sys
import weakref
from ast import literal_eval
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import wraps
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.distributed.distributed_c10d import _resolve_process_group, get_group_rank
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves

from planner.errors import RunFailed
from planner.export.torch_program.collectives import python_name

FOLDER = "shardplan-trace"
"""Where SHARDPLAN_TRACE=1 writes; another value is the folder's name."""
RING_PASSES: Mapping[str, Callable[[int], int]] = {
    "all_gather_into_tensor": lambda members: members,
    "reduce_scatter_tensor": lambda members: 1,
    "all_reduce": lambda members: 2,
}
"""How often a ring moves a collective's operand, but for a process's own share of it."""
NamedPlace = tuple[int, str]
"""The number of a line, and the name of what it computes."""
NAMED_LINE = re.compile(r"(?P<results>[\w, ]+?) = .*  # (?P<name>'.*'|\".*\")$")


class RunCounter(TorchDispatchMode):  # type: ignore[misc]  # torch is untyped here
    """Bytes received by scope, and bytes alive; set `scope` to the name of what runs."""

    def __init__(self, arguments: Sequence[Any]) -> None:
        super().__init__()
        self.received: dict[str, float] = defaultdict(float)
        self.scope, self.peak_at = "", ""
        self.live = self.peak_bytes = 0
        self._alive: dict[int, weakref.finalize[Any, Any]] = {}
        for each in tree_leaves(list(arguments)):
            self._hold(each)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        results = func(*args, **(kwargs or {}))
        if func.namespace == "_c10d_functional":
            self.received[self.scope] += count_received(func.__name__.split(".")[0], args)
        for each in tree_leaves(results):
            if isinstance(each, torch.Tensor):
                self._hold(each)
        return results

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        for each in self._alive.values():
            each.detach()

    def _hold(self, tensor: torch.Tensor) -> None:
        storage = getattr(tensor, "elem", tensor).untyped_storage()
        place = storage._cdata
        if place not in self._alive:
            self._alive[place] = weakref.finalize(storage, self._release, place, storage.nbytes())
            self._alive[place].atexit = False
            self.live += storage.nbytes()
            if self.live > self.peak_bytes:
                self.peak_bytes, self.peak_at = self.live, self.scope

    def _release(self, place: int, size: int) -> None:
        del self._alive[place]
        self.live -= size


def count_received(op: str, given: Sequence[Any]) -> float:
    """Return the bytes that a call of a functional collective brings this process; 0 for a wait."""
    tensor, group = given[0], given[-1]
    if op == "all_to_all_single":
        group = _resolve_process_group(group)
        row = tensor.element_size() * (tensor.shape[1:].numel() if tensor.shape[0] else 1)
        arrives = [*given[1]]
        arrives.pop(get_group_rank(group, dist.get_rank()))
        return float(sum(arrives) * row)
    if op not in RING_PASSES:
        return 0.0
    members = _resolve_process_group(group).size()
    return float(tensor.numel() * tensor.element_size() * RING_PASSES[op](members) * (members - 1) / members)


class ProgramTrace:
    """The trace of this process: functions of a program that were followed, in a file that every call writes anew.

    Making one turns torch.compile off in the process.
    """

    def __init__(self, graph: str, folder: str) -> None:
        torch.compiler.set_stance("force_eager")
        self.graph, self.functions = graph, dict[str, dict[str, Any]]()
        self.path = Path(FOLDER if folder == "1" else folder, f"{python_name(graph)}-rank-{dist.get_rank()}.json")

    def follow(self, function: Any) -> Any:
        """Return the function, followed. Raises RunFailed, on every process, for a value with a NaN."""
        lines = _name_lines(function)

        @wraps(function)
        def run(*arguments: Any) -> Any:
            followed = _FollowedCall(function, lines, arguments)
            results = followed.run(arguments)
            self._add(function.__name__, followed)
            _refuse_nan(function.__name__, followed.first_nan)
            return results

        return run

    def _add(self, name: str, followed: _FollowedCall) -> None:
        counter = followed.counter
        calls = self.functions.get(name, {"calls": 0})["calls"] + 1
        self.functions[name] = {
            "calls": calls,
            "received_bytes": {scope: size for scope, size in counter.received.items() if size},
            "held_bytes": followed.held_bytes,
            "peak_bytes": counter.peak_bytes,
            "peak_at": counter.peak_at,
        }
        document = {
            "format": "shardplan.trace",
            "version": 1,
            "graph": self.graph,
            "torch": torch.__version__,
            "rank": dist.get_rank(),
            "ranks": dist.get_world_size(),
            "functions": self.functions,
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(document, indent=1) + "\n")


class _NamedLines(NamedTuple):
    """By number of a line what it computes and the variables of its results, and the functions with such lines."""

    names: Mapping[int, tuple[str, list[str]]]
    functions: Collection[str]


class _FollowedCall:
    """One call of a function, and of those of its module that it calls: what it receives and holds, line by line."""

    def __init__(self, function: Any, lines: _NamedLines, arguments: Sequence[Any]) -> None:
        self.function, self.lines, self.counter = function, lines, RunCounter(arguments)
        self.held_bytes = self.counter.live
        self.first_nan: NamedPlace | None = None
        self._scope: Any = None
        self._line = 0

    def run(self, arguments: Sequence[Any]) -> Any:
        before = sys.gettrace()
        with self.counter:
            sys.settrace(self._enter)
            try:
                return self.function(*arguments)
            finally:
                sys.settrace(before)

    def _enter(self, frame: FrameType, event: str, argument: Any) -> Any:
        code = frame.f_code
        is_named = code.co_filename == self.function.__code__.co_filename and code.co_name in self.lines.functions
        return self._step if is_named else None

    def _step(self, frame: FrameType, event: str, argument: Any) -> Any:
        """Leave the scope of the line before, and enter that of the line that is next."""
        self._leave(frame)
        if event == "line" and frame.f_lineno in self.lines.names:
            self._line = frame.f_lineno
            self.counter.scope = self.lines.names[self._line][0]
            with _disable_current_modes():
                self._scope = torch.profiler.record_function(self.counter.scope).__enter__()
        return self._step

    def _leave(self, frame: FrameType) -> None:
        if self._scope is None:
            return
        name, results = self.lines.names[self._line]
        made = [frame.f_locals.get(each) for each in results]
        with _disable_current_modes():
            for each in made:
                if isinstance(each, AsyncCollectiveTensor):
                    each.trigger_wait()
            self._scope.__exit__(None, None, None)
            self._scope = None
            self.held_bytes = max(self.held_bytes, self.counter.live)
            if self.first_nan is None and any(map(_has_nan, made)):
                self.first_nan = self._line, name
        self.counter.scope = ""


def _name_lines(function: Any) -> _NamedLines:
    """Return the lines of a program's module that have names, and the functions that they are in."""
    names, functions, inside = dict[int, tuple[str, list[str]]](), set[str](), ""
    for number, line in enumerate(linecache.getlines(function.__code__.co_filename), 1):
        if line.startswith("def "):
            inside = line.removeprefix("def ").partition("(")[0]
        elif found := NAMED_LINE.fullmatch(line.strip()):
            names[number] = literal_eval(found["name"]), found["results"].replace(",", " ").split()
            functions.add(inside)
    return _NamedLines(names, functions)


def _has_nan(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point() and bool(value.float().isnan().any())


def _refuse_nan(function: str, first: NamedPlace | None) -> None:
    """Raise the same error on every process where the function made a NaN on any of them."""
    seen: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(seen, first)
    if found := [each for each in seen if each is not None]:
        ranks = ", ".join(str(rank) for rank, each in enumerate(seen) if each == min(found))
        what, wanted = f"the {function} program made a NaN", "numbers and infinities"
        raise RunFailed(what, where=f"value {min(found)[1]!r}", got=f"NaN on rank {ranks}", wanted=wanted)
