"""The bandwidth factor at which another layout becomes faster equals that of a slow scan of all factors."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner import pipeline
from planner.choose.cost import CostModel
from planner.choose.formulate import formulate
from planner.choose.hardware import load_profile
from planner.ir.graph import Graph
from planner.ir.mesh import Mesh
from planner.ir.program import Program
from planner.judge.analysis import Analysis
from planner.judge.baselines import encode_baseline
from planner.judge.break_even import FACTOR_STEP, RepricedProgram, find_break_evens
from planner.judge.standard_layouts import list_baselines
from tests.testing.graphs import Sketch

GRID = [2 ** (power / 4) for power in range(-40, 41)]
MESHES = ("8", "16", "2x8")


def network() -> Graph:
    s = Sketch()
    x = s.input(4096, 2048)
    weights = [s.input(2048, 8192, kind="parameter"), s.input(8192, 2048, kind="parameter")]
    for weight, width in zip(weights, (8192, 2048), strict=True):
        x = s.op("relu", [s.op("matmul", [x, weight], (4096, width))], (4096, width))
    return s.graph(x)


def scaled(model: CostModel, link: str, factor: float) -> CostModel:
    links = dict(model.hardware.links)
    links[link] = replace(links[link], bandwidth=links[link].bandwidth * factor)
    return CostModel(model.mesh, replace(model.hardware, links=links))


def layouts(model: CostModel) -> dict[str, Program]:
    question = formulate(network(), model)
    known = {each.name: encode_baseline(question, each) for each in list_baselines(question.graph, model.mesh)}
    return {name: pipeline.write_program(question, question.decode(start)) for name, start in known.items() if start}


@pytest.mark.parametrize("best", ["FSDP", "Megatron tensor parallel"])
@pytest.mark.parametrize("mesh", MESHES)
def test_a_break_even_factor_is_where_a_scan_first_finds_another_layout_faster(mesh: str, best: str) -> None:
    model = CostModel(Mesh.parse(mesh), load_profile("h100-sxm"))
    programs = layouts(model)
    steps = {name: Analysis(program, model).step_ps for name, program in programs.items()}
    repriced = {name: RepricedProgram.of(name, Analysis(program, model)) for name, program in programs.items()}
    plan, others = repriced[best], [each for name, each in repriced.items() if steps[name] > steps[best]]
    found = {(turn.link, turn.factor > 1): turn for turn in find_break_evens(plan, others, model)}
    assert found
    for link in ("nvlink", "infiniband"):
        for up in (False, True):
            ahead = {
                factor
                for factor in GRID
                if (factor > 1) is up
                for other in others
                if Analysis(other.program, scaled(model, link, factor)).step_ps
                < Analysis(programs[best], scaled(model, link, factor)).step_ps
            }
            turn = found.get((link, up))
            if turn is None:
                assert not ahead
                continue
            nearest = min(ahead) if up else max(ahead)
            assert 2 ** (-1 / 4) / FACTOR_STEP <= turn.factor / nearest <= 2 ** (1 / 4) * FACTOR_STEP
            there = scaled(model, link, turn.factor)
            assert Analysis(programs[turn.layout], there).step_ps < Analysis(programs[best], there).step_ps


def test_repricing_at_the_same_bandwidth_changes_nothing() -> None:
    model = CostModel(Mesh.parse("2x8"), load_profile("h100-sxm"))
    for name, program in layouts(model).items():
        assert RepricedProgram.of(name, Analysis(program, model)).step_ps(model) == Analysis(program, model).step_ps
