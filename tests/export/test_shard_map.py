"""Programs as jax.shard_map: JAX computes the graph's numbers and moves the predicted bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from planner.errors import InvalidSharding
from planner.ir.collectives import Kind
from planner.ir.graph import Graph, TensorType
from planner.ir.indexing import Option
from planner.ir.mesh import Mesh
from planner.ir.program import OpCall, Program
from planner.ir.sharding import Reduction
from planner.reshard.documented_path import make_documented_path
from planner.rewrite.accumulate import accumulate_gradients
from planner.rewrite.materialize import materialize_completed
from planner.rewrite.propagation.propagate import propagate
from planner.run.backend import ROUNDED
from planner.run.executor import run_whole
from planner.run.inputs import random_inputs
from planner.run.validate import ROUNDED_TOLERANCE
from tests.testing.graphs import Sketch
from tests.testing.jax_agreement import OF_JAX, agree, is_even
from tests.testing.jax_devices import on_eight_devices
from tests.testing.micro_steps import tiny_llama, two_layers, without_next
from tests.testing.op_cases import CASES
from tests.testing.random_graphs import random_graph
from tests.testing.sample_programs import alone, known_by_its_rule, moves, question_of, random_program, training_step
from tests.testing.split_sequences import CASES as CASES_OF_SEQUENCES

pytestmark = pytest.mark.frameworks("jax")

# Ops whose array functions ask for more than shapes: where a span begins, what a mask leaves, numbers that only the
# devices know, several results, windows.
ROWS = (
    *("addmm", "arange", "embedding", "embedding_backward", "fft", "scatter", "split", "tril", "dilate", "adam"),
    *("cross_entropy_backward", "scaled_dot_product_attention_backward", "layer_norm_backward"),
    *("grouped_mm", "grouped_mm_weight_backward", "dynamic_slice", "dynamic_update_slice"),
    *("max_pool_backward", "average_pool_backward", "batch_norm_backward_sums", "batch_norm_backward"),
)
# Ops that read beyond their own elements, where blocks are uneven: what fills them up must not be read.
UNEVEN = (
    *("matmul", "max", "mean", "embedding_backward", "cross_entropy_backward", "layer_norm_backward"),
    *("scatter", "tril", "convolution", "max_pool", "fft"),
    *("grouped_mm", "grouped_mm_weight_backward", "dynamic_slice", "dynamic_update_slice"),
)
# Random graphs with halos, offsets, uneven blocks and terms, at the ends too.
CUT = (1, 3, 7, 19, 22, 26, 49, 68, 75, 117)


def split_as(graph: Graph, mesh: str, options: dict[str, Option]) -> Program:
    """The program of options asked for, routes as documented."""
    completed = propagate(graph, Mesh.parse(mesh), options)
    return materialize_completed(
        graph, Mesh.parse(mesh), completed, route=make_documented_path(graph, Mesh.parse(mesh))
    )


def row_programs(ops: Sequence[str], mesh: str, even: bool) -> dict[str, Program]:
    """Of each row the first program on a mesh whose blocks are all even, or of which some are not."""
    found: dict[str, Program] = {}
    for case in CASES:
        if case.op in ops and case.op not in found:
            question = question_of(alone(case), mesh)
            fitting = (p for seed in range(4) if is_even(p := random_program(question, seed)) == even)
            if program := next(fitting, None):
                found[case.op] = program
    return found


def test_a_step_of_micro_batches_is_a_scan() -> None:
    """What an instruction moves is counted once, as XLA's text has the body of the loop once."""
    steps = [(two_layers(), "3x2"), (tiny_llama("sgd"), "2x2")]
    programs = []
    for graph, mesh in steps:
        programs.append(random_program(question_of(accumulate_gradients(without_next(graph), 3), mesh), 2))
    agree(programs, shared=True)


def test_jax_computes_the_graph_and_moves_what_was_predicted() -> None:
    rows = row_programs(ROWS, "2x2", even=True)
    assert set(rows) == set(ROWS)
    assert any(move.kind is Kind.EXCHANGE for program in rows.values() for move in moves(program))
    agree(list(rows.values()))


def test_devices_compute_what_their_blocks_need() -> None:
    rows = row_programs(UNEVEN, "3x2", even=False)
    assert set(rows) == set(UNEVEN)
    agree(list(rows.values()))


def test_every_row_is_exported() -> None:
    from planner.export.shard_map import print_shard_map

    for case in CASES:
        print_shard_map(random_program(question_of(alone(case), "2"), 0))


def test_negative_positions_and_sums_of_integers_are_exported() -> None:
    programs = []
    for case in CASES:
        whole = case.attrs.get("accumulate") and case.operands[0].dtype == "i64"
        if case.attrs.get("beyond") == "wrap" or whole:
            programs.append(random_program(question_of(alone(case), "2x2"), 0))
    assert len(programs) > 3
    agree(programs, shared=True)


def test_attention_over_a_split_sequence_exchanges_it_for_heads() -> None:
    programs = [found.program for case in CASES_OF_SEQUENCES if (found := case.plan().analysis)]
    assert len(programs) == 5
    agree(programs, shared=True)


def test_jax_draws_the_same_numbers() -> None:
    agree([random_program(question_of(alone(case), "3x2"), 1) for case in CASES if "seed" in case.attrs], shared=True)


def test_positions_beyond_the_end_do_not_read_padding() -> None:
    s = Sketch()
    table, ids, rows = s.input(7, 4), s.input(5, dtype="i64"), s.input(5, 4)
    beyond = s.op("multiply", [ids], TensorType((5,), "i64"), scalar=100)
    made = s.op("index_put", [table, beyond, rows], (7, 4), dims=[0], beyond="clamp")
    loops = [loop.name for loop in s.ops[-1].rule.loops]
    option = tuple((0,) if name == "v0" else () for name in loops)
    program = split_as(s.graph(made), "4", {made: option})
    assert not is_even(program)
    agree([program])


def test_halos_offsets_and_partial_terms_are_exported() -> None:
    programs = []
    for graph, mesh in (random_graph(seed, halos=True) for seed in CUT):
        completed = propagate(graph, mesh)
        programs.append(materialize_completed(graph, mesh, completed, route=make_documented_path(graph, mesh)))
    held = [value.sharding for program in programs for value in program.values.values()]
    others = {Reduction.AVERAGE, Reduction.PRODUCT, Reduction.BITWISE_XOR}
    assert {each.reduction for each in held if each.partial} == {*OF_JAX, *others}
    assert any(each.halo_sizes for each in held)
    assert any(each.sharded_dims_offsets for each in held)
    agree(programs, shared=True)


def test_a_reduction_of_maxima_and_a_bias_added_once_are_exported() -> None:
    s = Sketch()
    x, w, bias = s.input(8, 16), s.input(16, 8), s.input(8)
    product = s.op("addmm", [bias, x, w], (8, 8))
    highest = s.op("max", [product], (8,), dims=[1])
    last = s.op("exp", [highest], (8,))
    options: dict[str, Option] = {product: ((), (), (0, 1)), highest: ((), (1,)), last: ((0,),)}
    program = split_as(s.graph(last), "2x4", options)
    assert {program.values[value].sharding.reduction for value in (product, highest)} == {Reduction.SUM, Reduction.MAX}
    agree([program])


@pytest.mark.parametrize(("model", "even"), [("llama-7b", True), ("gpt2", False)])
def test_a_training_step_is_exported_whole(model: str, even: bool) -> None:
    """In f32: XLA on a CPU would send bf16 as f32. GPT-2 has 50257 words."""
    program = training_step(model, "f32")
    assert is_even(program) == even
    agree([program])


def test_a_step_in_bf16_comes_as_near_as_rounding_lets_it() -> None:
    import jax.numpy as jnp

    from planner.export.shard_map import print_shard_map

    program = training_step("llama-7b", "bf16")
    inputs = random_inputs(program.graph, np, ROUNDED, seed=0)
    halves = [name for name, _ in program.arguments if program.graph.types[name].dtype == "bf16"]
    given = inputs | {name: inputs[name].astype(jnp.bfloat16) for name in halves}
    ((results, _),) = on_eight_devices([(print_shard_map(program), [given[name] for name, _ in program.arguments])])
    whole = run_whole(program.graph, inputs, np, precision=ROUNDED)
    assert len(halves) > 10
    for name, result in zip(program.graph.outputs, results, strict=True):
        assert result.dtype.name == {"bf16": "bfloat16", "f32": "float32"}[program.graph.types[name].dtype]
        near = ROUNDED_TOLERANCE["bf16"] * np.abs(whole[name]).max()
        np.testing.assert_allclose(result.astype("f4"), whole[name], rtol=0, atol=near)


@pytest.mark.parametrize("starts", [(-3, 1), (9, 0), (2, 4)])
def test_a_slice_that_reaches_beyond_an_end_is_moved_inside(starts: tuple[int, int]) -> None:
    s = Sketch()
    x, update = s.input(7, 6), s.input(3, 4)
    at = [s.op("full", [], TensorType((), "i64"), value=start) for start in starts]
    put = s.op("dynamic_update_slice", [x, update, *at], (7, 6), dims=[0, 1])
    cut = s.op("dynamic_slice", [put, *at], (3, 4), dims=[0, 1])
    graph = s.graph(put, cut)
    split = {loop.name for op in s.ops[-2:] for loop in op.rule.loops}
    assert {"v0", "v1", "k0", "k1"} <= split
    agree([random_program(question_of(graph, "2x2"), seed) for seed in range(4)])


def test_an_op_known_by_its_rule_alone_is_named() -> None:
    from planner.export.shard_map import print_shard_map

    program = split_as(known_by_its_rule(), "1", {})
    wanted = r"op 'n' \(sort_rows\): an op cannot be expressed for jax.shard_map.*a rule"
    with pytest.raises(InvalidSharding, match=wanted):
        print_shard_map(program)


def test_names_are_text_and_never_code() -> None:
    from planner.export.shard_map import print_shard_map

    s = Sketch()
    made = s.op("relu", [s.input(8, 8)], (8, 8))
    program = split_as(s.graph(made), "2", {made: ((0,), ())})
    said = '"""\nraise SystemExit(1)\n'
    runs = [replace(done, op=replace(done.op, id=said)) for done in program.instructions if isinstance(done, OpCall)]
    named = replace(program, graph=replace(program.graph, name=said), instructions=tuple(runs))
    module: dict[str, object] = {}
    exec(print_shard_map(named), module)
    assert module["GRAPH"] == said
