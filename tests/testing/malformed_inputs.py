"""Valid texts, annotations and SPMD programs with one fault each, which must be refused by a designed error.

A `Case` is tried by calling it. A damaged text may still be valid; all other faults must be refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Any

from planner.errors import ShardplanError
from planner.export.mlir import Dialect, print_graph
from planner.frontends.mlir import read_mlir
from planner.ir.graph import Annotation, Graph
from planner.ir.mesh import Mesh
from planner.ir.sharding import Reduction, Sharding
from planner.rewrite.propagation.propagate import propagate
from planner.run.spmd_executor import run_spmd
from planner.spmd import SPMD_OPS, LocalType, SpmdCall, SpmdProgram
from planner.spmd.instruction import SpmdInstruction
from tests.testing.random_graphs import random_graph
from tests.testing.random_spmd import REDUCERS, Writer, written

DAMAGE = ("", "<", "]", '"', "%0", "9", "x", "tensor", "\\", "{", "(", "mesh.shard ", "-1", ",")


@dataclass(frozen=True)
class Case:
    """A faulty input: its kind, the fault and a function that tries it; `text` is the input where it is a text."""

    kind: str
    name: str
    attempt: Callable[[], Any]
    text: str = ""
    may_be_right: bool = False


def cases(texts: int, damaged: int, annotations: int, programs: int) -> Iterator[Case]:
    """Yield every applicable fault of so many valid inputs of each kind."""
    for seed in range(texts):
        yield from text_faults(right_text(seed), Random(seed))
    for seed in range(damaged):
        yield damage(right_text(seed), Random(seed))
    for seed in range(annotations):
        yield from annotation_faults(*random_graph(seed), Random(seed))
    for seed in range(programs):
        yield from program_faults(written(seed)[0], Random(seed))


def right_text(seed: int) -> str:
    """Return the text of a random graph in either dialect; graphs that it cannot express are skipped."""
    dialect = (Dialect.MESH, Dialect.SHARD)[seed % 2]
    while True:
        try:
            text = print_graph(*random_graph(seed), dialect)
            read_mlir(text)
        except ShardplanError:
            seed += 1000
        else:
            return text


TEXT_FAULTS: tuple[tuple[str, str, str], ...] = (
    # what it is, a pattern of which one occurrence is taken, what stands there instead
    ("a value that nothing makes", r"%[\w.]+(?=[,)\]]| :)(?!: )", "%nowhere"),
    ("an operation nobody knows", r"\b(?:tosa|linalg|arith|math)\.\w+", "foo.bar"),
    ("a mesh axis out of range", r"(?<=\[\[)\d+(?=[\],])", "99"),
    ("a negative mesh axis", r"(?<=\[\[)\d+(?=[\],])", "-1"),
    ("a mesh nobody declared", r"(?<=<)@\w+|(?<=sharding )@\w+", "@nowhere"),
    ("an element type nobody knows", r"(?<=x)[fi]\d+(?=>)", "complex"),
    ("a dim out of range", r"(?<=tensor<)\d+(?=x)", "9999999999999"),
    ("a bracket too few", r"[\[\](){}<>]", ""),
    ("a bracket too many", r"(?<=[\w\]])[\])}](?=[^\w])", ")]"),
    ("a partial sum of no kind", r"(?<=partial = )\w+", "median"),
    ("a list too many", r"(?<=\[\[)[\d, ]*\](?=[,\]])", "], [], [], [], [], [], [], []"),
    ("a mesh without size", r"(?<=shape = )[\dx]+", "-3"),
    ("a size of zero", r"(?<=shape = )\d+", "0"),
    ("a keyword gone", r"\bfunc\.func\b|\breturn\b", "nothing"),
)


def text_faults(text: str, random: Random) -> Iterator[Case]:
    for name, pattern, instead in TEXT_FAULTS:
        if found := list(re.finditer(pattern, text)):
            chosen = random.choice(found)
            wrong = text[: chosen.start()] + instead + text[chosen.end() :]
            yield Case("text", name, partial(read_mlir, wrong), wrong)
    lines = text.splitlines()
    made = [number for number, line in enumerate(lines) if re.match(r"\s*%\w+ = ", line)]
    if made:
        again = random.choice(made)
        wrong = "\n".join([*lines[: again + 1], lines[again], *lines[again + 1 :]])
        yield Case("text", "a value made twice", lambda: read_mlir(wrong), wrong)
    cut = text[: random.randrange(text.rstrip().rindex("}"))]
    yield Case("text", "a text cut off", lambda: read_mlir(cut), cut)


def damage(text: str, random: Random) -> Case:
    """Overwrite one to three places of a text."""
    letters = list(text)
    for _ in range(random.randint(1, 3)):
        place = random.randrange(len(letters))
        letters[place : place + random.randint(0, 6)] = random.choice(DAMAGE)
    wrong = "".join(letters)
    return Case("damaged text", "damage", lambda: read_again(wrong), wrong, may_be_right=True)


def read_again(text: str) -> None:
    """Assert that a text parses to a graph that survives printing and parsing again."""
    graph, mesh = read_mlir(text)
    first = print_graph(graph, mesh)
    assert print_graph(*read_mlir(first)) == first, "printed otherwise when read again"


def annotation_faults(graph: Graph, mesh: Mesh, random: Random) -> Iterator[Case]:
    """Yield the graph with annotations that are invalid for their value, mesh or reader."""
    value = random.choice(list(graph.types))
    rank, axes = len(graph.types[value].shape), len(mesh.axes)
    axis = random.randrange(axes)
    kinds = [kind for kind in Reduction if kind.dtype_error(graph.types[value].dtype)] if mesh.shape[axis] > 1 else []
    split = ((axis,), *[()] * (rank - 1)) if rank else ()
    wrong: list[tuple[str, Callable[[], Annotation]]] = [
        ("an axis twice", lambda: Annotation(value, Sharding(((axis, axis),)))),
        ("an axis split and partial", lambda: Annotation(value, Sharding(((axis,),), (axis,)))),
        ("a negative axis", lambda: Annotation(value, Sharding(((-1 - axis,),)))),
        ("an axis the mesh lacks", lambda: Annotation(value, Sharding(((axes,), *split[1:])))),
        ("a partial axis the mesh lacks", lambda: Annotation(value, Sharding(((),) * rank, (axes,)))),
        ("more lists than dims", lambda: Annotation(value, Sharding(((),) * (rank + 1)))),
        ("one halo", lambda: Annotation(value, Sharding(((axis,),), halo_sizes=(1,)))),
        ("a negative halo", lambda: Annotation(value, Sharding(((axis,),), halo_sizes=(1, -1)))),
        ("offsets that fall", lambda: Annotation(value, Sharding(((axis,),), sharded_dims_offsets=((0, 3, 2),)))),
        ("offsets from 1", lambda: Annotation(value, Sharding(((axis,),), sharded_dims_offsets=((1, 3),)))),
        (
            "halo and offsets",
            lambda: Annotation(value, Sharding(((axis,),), halo_sizes=(1, 1), sharded_dims_offsets=((0, 1),))),
        ),
        ("no such value", lambda: Annotation("nowhere", Sharding(()))),
        ("no such reader", lambda: Annotation(value, Sharding(()), user="nobody")),
        *[(f"{kind} of floats", partial(Annotation, value, Sharding(((),) * rank, (axis,), kind))) for kind in kinds],
    ]
    for name, made in wrong:
        if name.startswith("an axis the mesh") and not rank:
            continue
        yield Case("annotation", name, partial(annotated, graph, mesh, made))


def annotated(graph: Graph, mesh: Mesh, made: Callable[[], Annotation]) -> None:
    propagate(replace(graph, annotations=(made(),)), mesh)


# What an attribute of a right call may not be, by what it is checked for.
DIMS = ("gather_axis", "slice_axis", "scatter_axis", "split_axis", "concat_axis")
PLACES = ("root", "source", "destination")
WRONG: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(DIMS, (-1, 99, "0", None, [0], True, 0.0)),
    **dict.fromkeys(PLACES, ([99], [-1], [0] * 9, "0", 0, ["0"])),
    "mesh_axes": ([99], [-1], [0, 0], "01", 0, ["0"], [0.5]),
    "reduction": ("median", 0, ["sum"]),
    "block": (0, -1, "2", 1.5, True),
    "offset": (99, -99, "1", 0.5),
    "shift_axis": (99, -1, "0", None),
    "rotate": (1, "yes", None),
    "pairs": ([(0, 99)], [(-1, 0)], [(0, 0), (0, 0)], [0], "01", [(0,)]),
    "split_axes": ([[99]], [[0], [0]], [[-1]], "00", [0]),
    "source_halo_sizes": ([1] * 9, [-1], "1", 3, [0.5]),
    "destination_halo_sizes": ([1] * 9, [-1], "1", 3, [0.5]),
    "only": ([[99]], [[0] * 9], 0, "0"),
}


def program_faults(writer: Writer, random: Random) -> Iterator[Case]:
    """Yield programs with one wrong call, argument or output."""
    right = writer.build.program(list(writer.held))
    calls = [number for number, done in enumerate(right.instructions) if isinstance(done, SpmdCall)]
    if not calls:
        return
    number = random.choice(calls)
    call = right.instructions[number]
    assert isinstance(call, SpmdCall)
    for name, wrong in call_faults(call, random):
        listed = (*right.instructions[:number], wrong, *right.instructions[number + 1 :])
        yield Case(
            "program",
            f"{call.op}: {name}",
            partial(rewritten, right, listed, writer.given),
        )
    yield Case("program", "an output nobody makes", lambda: replace(right, outputs=("nowhere",)))
    yield Case("program", "an argument twice", lambda: replace(right, arguments=(*right.arguments, right.arguments[0])))
    yield Case("program", "a default mesh nobody declared", lambda: replace(right, default_mesh="nowhere"))
    yield Case("program", "a call twice", lambda: replace(right, instructions=(*right.instructions, call)))
    yield Case("program", "an argument not given", lambda: run(right, {"x": writer.given["x"]}))
    yield Case("program", "too few local tensors", lambda: run(right, {**writer.given, "x": writer.given["x"] * 2}))


def rewritten(program: SpmdProgram, instructions: tuple[SpmdInstruction, ...], given: Any) -> None:
    run(replace(program, instructions=instructions), given)


def run(program: SpmdProgram, given: Any) -> None:
    run_spmd(program, given, reducers=REDUCERS)


def call_faults(call: SpmdCall, random: Random) -> Iterator[tuple[str, SpmdCall]]:
    for key in call.attrs:
        wrong = random.choice(WRONG.get(key, (object,)))
        wraps = key == "offset" and call.attrs.get("rotate") is True and isinstance(wrong, int)
        if key in WRONG and not wraps:
            yield f"{key} {wrong!r}", replace(call, attrs={**call.attrs, key: wrong})
    yield "an attribute nobody knows", replace(call, attrs={**call.attrs, "colour": 1})
    yield "a mesh nobody declared", replace(call, attrs={**call.attrs, "mesh": "nowhere"})
    yield "an operation nobody knows", replace(call, op="all_gossip")
    yield "an operand nobody makes", replace(call, operands=("nowhere", *call.operands[1:]))
    yield "an operand too many", replace(call, operands=(*call.operands, *call.operands[:1], *call.operands[:1]))
    yield "no operand", replace(call, operands=())
    yield "a result too many", replace(call, results=(*call.results, "more"), types=(*call.types, call.types[0]))
    shape = call.types[0].shape
    yield "a result of another rank", replace(call, types=(LocalType((*shape, 1), call.types[0].dtype),))
    if "reduction" not in SPMD_OPS[call.op].attrs:
        yield "a result of another type", replace(call, types=(LocalType(shape, "f32"),))
