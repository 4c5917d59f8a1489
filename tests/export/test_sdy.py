"""Programs in Shardy's dialect: its verifier accepts them, and its passes insert no reshard."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter

import pytest

from planner.errors import InvalidSharding
from planner.export.sdy import print_sdy
from planner.ir.mesh import Mesh
from planner.ir.program import Program, Reshard
from planner.ir.sharding import Reduction
from tests.testing.graphs import small_transformer
from tests.testing.op_cases import CASES
from tests.testing.sample_programs import alone, left_partial, question_of, random_program, training_step

RESHARD = "builtin.module(func.func(sdy-insert-explicit-reshards{enable-full-version=true}))"
SHARDY = f"""
import sys
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import func, sdy, stablehlo
from jaxlib.mlir.passmanager import PassManager
from jaxlib.mlir._mlir_libs import _jax_mlir_ext
with ir.Context() as context:
    registry = ir.DialectRegistry()
    _jax_mlir_ext.register_dialects(registry)
    context.append_dialect_registry(registry)
    sdy.register_dialect(context)
    stablehlo.register_dialect(context)
    for text in sys.stdin.read().split("// -----\\n"):
        module = ir.Module.parse(text)
        PassManager.parse({RESHARD!r}).run(module.operation)
        print(module)
        print("// -----")
"""
JAXLIB = pytest.mark.frameworks("jaxlib")
SIZES = [{}, {"d": 12, "ff": 20, "heads": 6, "batch": 7, "seq": 9}]


def resharded(programs: list[Program]) -> list[str]:
    """Every program as Shardy leaves it, which verifies what it reads; in a process that bad input would end."""
    text = "// -----\n".join(map(print_sdy, programs))
    run = subprocess.run([sys.executable, "-c", SHARDY], input=text, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-2000:]
    return run.stdout.split("// -----\n")[:-1]


def collectives(text: str) -> Counter[str]:
    return Counter(re.findall(r"sdy\.(all_\w+|reduce_scatter|reshard|collective_permute)", text))


def readers_of_terms(program: Program) -> int:
    held = program.values
    return sum(any(held[name].sharding.partial for name in done.operands) for done in program.instructions)


def left_alone(program: Program, text: str) -> None:
    """Shardy left a program as it was, but for sums."""
    ours, theirs = collectives(print_sdy(program)), collectives(text)
    added = theirs - ours
    assert set(added) <= {"all_reduce"}, "Shardy sums terms before whoever reads them, our collectives too"
    assert added["all_reduce"] <= readers_of_terms(program)
    assert not ours - theirs


@JAXLIB
@pytest.mark.parametrize("sizes", SIZES, ids=["even", "uneven"])
def test_shardy_accepts_programs_and_inserts_no_reshard(sizes: dict[str, int]) -> None:
    question = question_of(small_transformer(Mesh.parse("2x4"), **sizes), "2x4")
    programs = [random_program(question, seed) for seed in range(5)]
    for program, text in zip(programs, resharded(programs), strict=True):
        moves = [done for done in program.instructions if isinstance(done, Reshard)]
        assert collectives(print_sdy(program)).total() == len(moves)
        left_alone(program, text)


@JAXLIB
def test_training_steps_are_exported_whole() -> None:
    """A maximum over the words, which are split, and gradients of which some are terms and some are not."""
    programs = [training_step(model, "f32") for model in ("llama-7b", "gpt2")]
    held = [value.sharding for program in programs for value in program.values.values()]
    assert {each.reduction for each in held if each.partial} == {Reduction.SUM, Reduction.MAX}
    for program, text in zip(programs, resharded(programs), strict=True):
        left_alone(program, text)


@JAXLIB
def test_shardy_accepts_the_rule_of_every_row() -> None:
    programs = []
    for case in CASES:
        program = random_program(question_of(alone(case), "2"), 0)
        try:
            print_sdy(program)
        except InvalidSharding:
            continue
        programs.append(program)
    assert len(programs) > 250
    resharded(programs)


def test_other_reductions_are_refused() -> None:
    with pytest.raises(InvalidSharding, match=r"value 'i0'.*: reduction \(got max"):
        print_sdy(left_partial(Reduction.MAX))
