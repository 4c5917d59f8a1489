"""Programs for torch.distributed: processes over gloo compute the graph's numbers and move the predicted bytes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from planner.errors import InvalidSharding
from planner.ir.accounting import count_received_bytes
from planner.ir.collectives import Kind
from planner.ir.program import OpCall, Program
from planner.ir.sharding import Reduction, shard_shapes
from planner.reshard.documented_path import make_documented_path
from planner.rewrite.accumulate import accumulate_gradients
from planner.rewrite.materialize import materialize_completed
from planner.rewrite.propagation.propagate import propagate
from planner.run.executor import run_whole
from planner.run.inputs import random_inputs, random_later_data
from tests.testing.micro_steps import stack_data, tiny_llama, two_layers, without_next
from tests.testing.op_cases import CASES
from tests.testing.random_graphs import random_graph
from tests.testing.sample_programs import alone, known_by_its_rule, moves, question_of, random_program, training_step
from tests.testing.torch_programs import run_programs

pytestmark = pytest.mark.frameworks("torch")

# Ops whose array functions ask for more than shapes: where a span begins, what a mask leaves, numbers that only the
# devices know, unsigned numbers, windows.
ROWS = (
    *("addmm", "arange", "embedding", "embedding_backward", "scatter", "index_put", "split", "tril", "dilate", "adam"),
    *("scaled_dot_product_attention_backward", "grouped_mm", "dynamic_slice", "dynamic_update_slice", "random_bits"),
    *("convolution", "max_pool_backward", "batch_norm_backward", "product", "dropout", "fft"),
)
STEP_MESH = "dp=3,tp=2"


def agree(programs: Sequence[Program], folder: Path) -> None:
    """Numbers are those of the graph and bytes those predicted, for all programs of one number of devices."""
    from planner.export.torch_program import print_torch

    inputs = [random_inputs(program.graph, np, "declared", seed=0) for program in programs]
    others = [random_later_data(program.graph, np, "declared", seed=0) for program in programs]
    jobs = [
        (print_torch(program), [stack_data(arrays[name], name, later) for name, _ in program.arguments])
        for program, arrays, later in zip(programs, inputs, others, strict=True)
    ]
    found, received = run_programs(folder, jobs, programs[0].mesh.devices)
    for program, arrays, later, results, counted in zip(programs, inputs, others, found, received, strict=True):
        assert counted == pytest.approx(count_received_bytes(program).sum()), str(program)
        with np.errstate(all="ignore"):
            whole = run_whole(program.graph, arrays, np, precision="declared", later=later)
        for name, result in zip(program.graph.outputs, results, strict=True):
            most = np.abs(whole[name][np.isfinite(whole[name])]).max(initial=1e-30)
            np.testing.assert_allclose(result, whole[name], rtol=0, atol=1e-5 * most, err_msg=str(program))


def programs_of(op: str, mesh: str) -> Iterator[Program]:
    for case in CASES:
        if case.op == op:
            yield from (random_program(question_of(alone(case), mesh), seed) for seed in range(4))


def issue_early(program: Program) -> Program:
    """Return the program with every collective right after what makes its operand."""
    keys: dict[str, tuple[int, ...]] = {name: (-1,) for name, _ in program.arguments}
    for place, done in enumerate(program.instructions):
        key = (place,) if isinstance(done, OpCall) else (*keys[done.operand], place)
        keys |= dict.fromkeys(done.results, key)
    ordered = sorted(program.instructions, key=lambda done: keys[done.results[0]])
    return replace(program, instructions=tuple(ordered))


def reads_empty_block(program: Program) -> bool:
    """Return whether the first operand of an op is a block without elements on a device."""
    read = [program.values[done.operands[0]] for done in program.instructions if isinstance(done, OpCall)]
    return any(0 in shape for each in read for shape in shard_shapes(each.sharding, each.type.shape, program.mesh))


def test_processes_compute_the_graph_and_receive_what_was_predicted(tmp_path: Path) -> None:
    """A whole training step, ops of every kind on uneven blocks, and halos, offsets and partial values."""
    first = {case.op: case for case in CASES if case.op in ROWS}
    assert set(first) == set(ROWS)
    programs = [random_program(question_of(alone(case), "3x2"), 1) for case in first.values()]
    for seed in range(60):
        graph, mesh = random_graph(seed, halos=True)
        if mesh.devices == 6:
            completed = propagate(graph, mesh)
            programs.append(materialize_completed(graph, mesh, completed, route=make_documented_path(graph, mesh)))
    programs.append(training_step("gpt2", "f32", STEP_MESH))
    programs += [next(filter(reads_empty_block, programs_of(op, "3x2"))) for op in ("scatter", "fft")]
    # No backend of torch has unsigned integers of 32 bits.
    unsigned = next(
        case for case in CASES if case.op == "add" and {kind.dtype for kind in alone(case).types.values()} == {"u32"}
    )
    programs.append(random_program(question_of(alone(unsigned), "3x2"), 0))
    # A result that is broadcast from one element.
    spread = next(case for case in CASES if case.op == "expand" and alone(case).inputs[0].type.shape == ())
    programs.append(random_program(question_of(alone(spread), "3x2"), 1))
    held = [value.sharding for program in programs for value in program.values.values()]
    assert {each.reduction for each in held if each.partial} > {Reduction.SUM, Reduction.MAX}
    assert any(each.halo_sizes for each in held)
    assert any(each.sharded_dims_offsets for each in held)
    assert {move.kind for program in programs for move in moves(program)} == set(Kind)
    agree(programs, tmp_path)


def test_a_step_of_micro_batches_is_a_loop(tmp_path: Path) -> None:
    """Numbers and bytes are those of all micro-batches; one update reads what the last one computed."""
    steps = [(two_layers(), 0), (two_layers(), 1), (tiny_llama("sgd"), 2)]
    programs = [
        random_program(question_of(accumulate_gradients(without_next(graph), 3), "3x2"), seed) for graph, seed in steps
    ]
    agree(programs, tmp_path)


def test_a_collective_is_waited_for_where_its_result_is_first_read(tmp_path: Path) -> None:
    """Each is issued as soon as its operand is there, and what has to be copied when it arrives is copied then."""
    from planner.export.torch_program import print_torch

    meshes = ((graph, mesh) for graph, mesh in map(random_graph, range(60)) if mesh.devices == 6)
    drawn = [materialize_completed(*each, propagate(*each), route=make_documented_path(*each)) for each in meshes]
    programs = list(map(issue_early, [*drawn[:6], training_step("gpt2", "f32", STEP_MESH)]))
    text = "".join(map(print_torch, programs))
    assert re.search(r"(n\d+) = exchange_\d+\(.*\n(.*\n)+    \1 = arrived\(\1\)", text)
    assert re.search(r"(n\d+) = all_gather\(.*\n(.*\n)+    \1 = arrived\(\1\)", text)
    agree(programs, tmp_path)


def test_a_module_has_the_scopes_of_its_ops_as_comments() -> None:
    from planner.export.torch_program import print_torch

    text = print_torch(training_step("gpt2", "f32", STEP_MESH))
    assert "# forward transformer.h.0\n" in text
    assert "# backward" in text
    assert "# update" in text


def test_an_op_without_an_array_function_is_refused_by_its_name() -> None:
    from planner.export.torch_program import print_torch

    with pytest.raises(InvalidSharding, match=r"op 'n' \(sort_rows\)"):
        print_torch(random_program(question_of(known_by_its_rule(), "2"), 0))
