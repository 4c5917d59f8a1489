"""Programs as jax.shard_map: JAX computes the numbers of the graph and moves the bytes that were predicted."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest

from planner.documents.graphs import graph_from
from planner.documents.schemas import GraphDocument, checked
from planner.errors import InvalidSharding
from planner.frontends.zoo import import_zoo
from planner.judge.baselines import baselines, strategies
from planner.model.accounts import received_bytes
from planner.model.collectives import Kind
from planner.model.graph import Graph
from planner.model.indexing import Option
from planner.model.mesh import Mesh
from planner.model.program import Program, Run
from planner.model.sharding import Reduction
from planner.pipeline import written
from planner.rewrite.materialize import materialize_completed
from planner.rewrite.propagate import propagate
from planner.rewrite.route import documented_route
from planner.run.devices import run_whole
from planner.run.inputs import random_inputs
from planner.run.shrink import shrink
from tests.export.eight_devices import on_eight_devices
from tests.graphs import Sketch
from tests.model.op_cases import CASES
from tests.run.sample_programs import moves, question_of, random_program
from tests.run.test_validate import alone, left_partial

pytestmark = pytest.mark.skipif(find_spec("jax") is None, reason="jax is not installed (extra jax)")

# Ops whose array functions ask for more than shapes: where a span begins, what a mask leaves, several results, windows.
ROWS = (
    *("addmm", "arange", "embedding", "embedding_backward", "scatter", "split", "tril", "dilate", "adam"),
    *("cross_entropy_backward", "scaled_dot_product_attention_backward", "layer_norm_backward"),
)
# What a row needs to know before it is run, and JAX cannot say.
REFUSED = [("grouped_mm", "int"), ("dynamic_slice", "int")]


def split_as(graph: Graph, mesh: str, options: dict[str, Option]) -> Program:
    """The program of options asked for, routes as documented."""
    completed = propagate(graph, Mesh.parse(mesh), options)
    return materialize_completed(graph, Mesh.parse(mesh), completed, documented_route(graph, Mesh.parse(mesh)))


def row_programs() -> dict[str, Program]:
    """Of each row the first program on 2x2 of even blocks that can be said."""
    found: dict[str, Program] = {}
    for case in CASES:
        if case.op in ROWS and case.op not in found:
            question = question_of(alone(case), "2x2")
            for program in (random_program(question, seed) for seed in range(4)):
                if case.op not in found and sayable(program):
                    found[case.op] = program
    return found


def sayable(program: Program) -> bool:
    from planner.export.shard_map import print_shard_map

    try:
        return bool(print_shard_map(program))
    except InvalidSharding:
        return False


def agree(programs: list[Program]) -> None:
    """Numbers and bytes are those of the graph and of the accounts, for all programs in one process."""
    from planner.export.shard_map import print_shard_map

    inputs = [random_inputs(program.graph, np, "declared", 0) for program in programs]
    jobs = [
        (print_shard_map(program), [arrays[name] for name, _ in program.arguments])
        for program, arrays in zip(programs, inputs, strict=True)
    ]
    for program, arrays, (results, moved) in zip(programs, inputs, on_eight_devices(jobs), strict=True):
        with np.errstate(all="ignore"):
            whole = run_whole(program.graph, arrays, np, "declared")
        for name, result in zip(program.graph.outputs, results, strict=True):
            most = np.abs(whole[name][np.isfinite(whole[name])]).max(initial=1e-30)
            np.testing.assert_allclose(result, whole[name], rtol=0, atol=1e-5 * most, err_msg=str(program))
        assert sum(count for _, count in moved) == received_bytes(program).sum(), program


def test_jax_computes_the_graph_and_moves_what_was_predicted() -> None:
    rows = row_programs()
    assert set(rows) == set(ROWS), "every row has a program that can be said"
    assert any(move.kind is Kind.EXCHANGE for program in rows.values() for move in moves(program))
    agree(list(rows.values()))


def test_a_reduction_of_maxima_and_a_bias_added_once_are_said() -> None:
    s = Sketch()
    x, w, bias = s.input(8, 16), s.input(16, 8), s.input(8)
    product = s.op("addmm", [bias, x, w], (8, 8))
    highest = s.op("max", [product], (8,), dims=[1])
    last = s.op("exp", [highest], (8,))
    options: dict[str, Option] = {product: ((), (), (0, 1)), highest: ((), (1,)), last: ((0,),)}
    program = split_as(s.graph(last), "2x4", options)
    assert {program.values[value].sharding.reduction for value in (product, highest)} == {Reduction.SUM, Reduction.MAX}
    agree([program])


def test_a_training_step_is_said_whole() -> None:
    """In f32: XLA on a CPU would send bf16 as f32."""
    document = import_zoo("llama-7b", layers=1, batch=8, seq=64, train="adam")
    text = json.dumps(document).replace('"bf16"', '"f32"')
    mesh = Mesh.parse("dp=2,tp=4")
    graph = graph_from(checked(GraphDocument, json.loads(text), "llama"), mesh)
    question = question_of(graph, "dp=2,tp=4")
    named = next(each for each in baselines(graph, mesh) if each.name == "DPxTP")
    chosen = strategies(question, named)
    assert chosen is not None
    agree([shrink(written(question, question.decode(chosen)))])


@pytest.mark.parametrize(("op", "message"), REFUSED)
def test_an_op_that_cannot_be_said_is_named(op: str, message: str) -> None:
    from planner.export.shard_map import print_shard_map

    case = next(case for case in CASES if case.op == op)
    program = split_as(alone(case), "1", {})
    with pytest.raises(InvalidSharding, match=rf"op .*\({op}\): an op has no text for jax.shard_map.*{message}"):
        print_shard_map(program)


def test_names_are_text_and_never_code() -> None:
    from planner.export.shard_map import print_shard_map

    s = Sketch()
    made = s.op("relu", [s.input(8, 8)], (8, 8))
    program = split_as(s.graph(made), "2", {made: ((0,), ())})
    said = '"""\nraise SystemExit(1)\n'
    runs = [replace(done, op=replace(done.op, id=said)) for done in program.instructions if isinstance(done, Run)]
    named = replace(program, graph=replace(program.graph, name=said), instructions=tuple(runs))
    module: dict[str, object] = {}
    exec(print_shard_map(named), module)
    assert module["GRAPH"] == said


def test_uneven_blocks_and_terms_at_the_ends_are_refused() -> None:
    from planner.export.shard_map import print_shard_map

    with pytest.raises(InvalidSharding, match="dim 0 is split unevenly"):
        print_shard_map(left_partial(Reduction.SUM))
    program = left_partial(Reduction.SUM)
    even = [(name, replace(held, split_axes=((), ()))) for name, held in program.arguments]
    with pytest.raises(InvalidSharding, match=r"value 'i0': terms of a sum have no PartitionSpec"):
        print_shard_map(replace(program, arguments=tuple(even)))
