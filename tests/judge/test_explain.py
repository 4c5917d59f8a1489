"""Explanations: terms add up to the step, options are priced as by the evaluator, forced options are solved again."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

import solvers
from planner import pipeline
from planner.choose.cost import CostModel
from planner.choose.formulate import Formulation, formulate
from planner.choose.hardware import load_profile
from planner.choose.variables import Role
from planner.errors import InvalidRequest, InvalidSharding
from planner.ir.mesh import Mesh
from planner.judge.analysis import Analysis
from planner.judge.explain import Decision, explain_decision
from planner.judge.program_choice import encode_choice, recover_choice
from planner.judge.what_if import WhatIf
from planner.planning.plan_types import Plan, Request
from tests.testing import small_graphs
from tests.testing.explained_graphs import GRAPHS, Make
from tests.testing.graphs import random_graph
from tests.testing.seeds import seeds

MESHES = ("2", "2x2")
GRAPHS += [partial(random_graph, seed, 6) for seed in seeds(6)]


def planned(make: Make, mesh: str, limit: int | None = None) -> tuple[Plan, Formulation, list[int]]:
    """A plan, its question, and its choice read back off its program."""
    graph, devices, cpu = make(), Mesh.parse(mesh), load_profile("cpu")
    plan = pipeline.plan(graph, devices, cpu, request=Request(limit, deterministic=True))
    assert plan.analysis is not None
    question = formulate(graph, CostModel(devices, cpu), limit or cpu.memory_bytes)
    return plan, question, encode_choice(question, recover_choice(plan.analysis.program))


@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("make", GRAPHS)
def test_the_choice_read_off_a_program_is_the_one_it_was_written_from(make: Make, mesh: str) -> None:
    plan, question, _ = planned(make, mesh)
    every = [plan.choice, *(question.decode([k % len(v.costs) for v in question.variables]) for k in range(40))]
    for choice in every:
        assert choice is not None
        try:
            program = pipeline.write_program(question, choice)
        except InvalidSharding:
            continue  # no way to reshard: a pair that costs too much to be chosen
        assert recover_choice(program) == choice


@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("make", GRAPHS)
def test_cost_terms_add_up_to_the_step_exactly(make: Make, mesh: str) -> None:
    plan, question, strategies = planned(make, mesh)
    assert plan.analysis is not None
    seen: dict[tuple[str, str, str, str], int] = {}
    own = 0
    for node, variable in enumerate(question.variables):
        option = next(
            each for each in Decision(question, strategies, node).option_costs if each.strategy == strategies[node]
        )
        own += option.compute_ps
        for number, reshard in enumerate(option.reshards):
            if reshard.direction == "in":
                assert reshard.time_ps is not None
                seen[reshard.value, variable.role, variable.name, str(number)] = reshard.time_ps
    assert own == plan.analysis.compute_ps
    assert own + sum(seen.values()) == plan.analysis.step_ps


@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("make", GRAPHS)
def test_an_option_with_its_neighbours_kept_is_priced_as_its_program(make: Make, mesh: str) -> None:
    plan, question, strategies = planned(make, mesh)
    assert plan.analysis is not None
    for op in question.graph.ops:
        found = explain_decision(question, strategies, op.id)
        chosen = next(each for each in found.option_costs if each.strategy == found.chosen)
        for option in found.option_costs:
            changed = [*strategies]
            changed[found.node] = option.strategy
            if option.time_ps is None:
                with pytest.raises(InvalidSharding, match="no way"):
                    pipeline.write_program(question, question.decode(changed))
                continue
            numbers = Analysis(pipeline.write_program(question, question.decode(changed)), question.model)
            assert chosen.time_ps is not None
            assert numbers.step_ps - plan.analysis.step_ps == option.time_ps - chosen.time_ps


@pytest.mark.parametrize("make", GRAPHS[:6])
def test_a_forced_option_costs_what_the_best_plan_with_it_costs(make: Make) -> None:
    plan, question, strategies = planned(make, "2")
    for op in question.graph.ops:
        found = explain_decision(question, strategies, op.id)
        listed = [each.strategy for each in found.option_costs]
        forced = WhatIf(question, strategies, 0, deterministic=True).force_options(found.node, listed, 60)
        for strategy, answer in forced.items():
            assert answer.exact or answer.infeasible
            option = found.variable.options[strategy]
            asked = replace(
                question.graph, ops=tuple(replace(o, option=option) if o is op else o for o in question.graph.ops)
            )
            oracle = solvers.solve(formulate(asked, question.model, question.problem.limit).problem, deterministic=True)
            assert answer.cost_ps == oracle.cost
        assert plan.analysis is not None
        assert forced[found.chosen].cost_ps == plan.analysis.step_ps


def test_a_forced_option_with_which_nothing_fits_is_infeasible() -> None:
    least = planned_least(small_graphs.product_and_relu)
    _, question, strategies = planned(small_graphs.product_and_relu, "2", least)
    found = explain_decision(question, strategies, question.graph.ops[0].id)
    listed = [each.strategy for each in found.option_costs]
    forced = WhatIf(question, strategies, 0, deterministic=True).force_options(found.node, listed, 60)
    assert any(answer.infeasible and answer.cost_ps is None for answer in forced.values())
    assert not forced[found.chosen].infeasible


def planned_least(make: Make) -> int:
    least = pipeline.plan(
        make(), Mesh.parse("2"), load_profile("cpu"), request=Request(1, deterministic=True)
    ).certificate
    assert least.least_limit_bytes is not None
    return least.least_limit_bytes


def test_when_time_is_up_an_option_is_priced_with_all_else_kept() -> None:
    _, question, strategies = planned(small_graphs.product_and_relu, "2x2")
    found = explain_decision(question, strategies, question.graph.ops[0].id)
    step = solvers.evaluate(question.problem, strategies).cost
    forced = WhatIf(question, strategies, 7).force_options(
        found.node, [each.strategy for each in found.option_costs], 0
    )
    chosen = next(each for each in found.option_costs if each.strategy == found.chosen)
    for option in found.option_costs:
        answer = forced[option.strategy]
        assert (answer.exact, answer.bound_ps) == (False, 7)
        kept = None if option.time_ps is None or chosen.time_ps is None else step + option.time_ps - chosen.time_ps
        assert answer.cost_ps == kept


def test_an_input_is_a_decision_too_and_other_names_are_refused() -> None:
    _, question, strategies = planned(small_graphs.product_and_relu, "2")
    name = question.graph.inputs[0].id
    assert explain_decision(question, strategies, name).variable.role is Role.INPUT
    with pytest.raises(InvalidRequest, match="no such op or input"):
        explain_decision(question, strategies, "nobody")


@pytest.mark.parametrize("make", GRAPHS[:4])
def test_bounds_around_an_option_claim_no_more_than_solving_everything_proves(make: Make) -> None:
    _, question, strategies = planned(make, "2x2")
    step = solvers.evaluate(question.problem, strategies).cost
    for op in question.graph.ops:
        found = explain_decision(question, strategies, op.id)
        listed = [each.strategy for each in found.option_costs]
        whole = WhatIf(question, strategies, step, deterministic=True).force_options(found.node, listed, 60)
        part = WhatIf(question, strategies, step, deterministic=True, exact_variables=0, neighbourhood=3).force_options(
            found.node, listed, 60
        )
        kept = WhatIf(question, strategies, step).force_options(found.node, listed, 0)
        for strategy in listed:
            near, exact, worst = (each[strategy].cost_ps for each in (part, whole, kept))
            assert part[strategy].bound_ps == step
            assert near is None or (exact is not None and near >= exact)
            assert worst is None or (near is not None and near <= worst)
        assert part[found.chosen].exact
