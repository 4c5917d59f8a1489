"""Attributes are checked against the types that their op's row declares, whatever the JSON value."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from planner.errors import InvalidGraph, ShardplanError
from planner.ops import OPS, bind_op
from tests.testing.op_case import Case
from tests.testing.op_cases import CASES
from tests.testing.op_trials import Trial

VALUES: list[Any] = [
    *(None, True, False, 0, 1, -1, 3, 99, 1 << 60, 10**400, 0.5, -2.0, 1e300, "", "none", "a b -> a"),
    *([], [0], [1, 0], [0, 0], [-1], [99], [0.5], [True], ["a"], [None], [[0]], [[]], [10**400], {}, {"a": 1}),
    *([["add", [0, 99], "f64", {}]], [["add", [0], "f64", {"scalar": "one"}]], [["none", [0], "f64", {}]]),
    *([["add", [-1, 0], "f64", {}]], [["add", [0, 0], "f99", {}]], [["gelu", [0], "f64", {"approximate": 1}]]),
]
# kinds of attributes, by the first words: the Python types of the JSON values that they take
TAKEN: dict[str, tuple[type, ...]] = {
    "number or flag": (int, float, bool),
    "number": (int, float),
    "flag": (bool,),
    "one of": (str,),
    "rule notation": (str,),
    "whole number": (int,),
    "dim": (int,),
    "list of": (list,),
    "permutation": (list,),
}
DECLARED = [(row.name, attribute.name) for row in OPS.values() for attribute in row.attrs]
ABSENT = object()


def example(op: str, attribute: str) -> Case:
    """The first case of an op that has the attribute, or else its first case."""
    cases = [case for case in CASES if case.op == op]
    return next((case for case in cases if attribute in case.attrs), cases[0])


def given(case: Case, attribute: str, value: object) -> Case:
    others = {name: old for name, old in case.attrs.items() if name != attribute}
    return replace(case, attrs=others if value is ABSENT else {**others, attribute: value})


def bind(case: Case) -> None:
    bind_op(case.op, case.operands, case.results, attrs=case.attrs, notation=None)


def is_taken(kind: str, value: object) -> bool:
    types = next(types for words, types in TAKEN.items() if kind.startswith(words))
    return type(value) in types


@pytest.mark.parametrize(("op", "name"), DECLARED)
def test_a_value_of_another_type_is_refused_by_name(op: str, name: str) -> None:
    case = example(op, name)
    (attribute,) = (each for each in OPS[op].attrs if each.name == name)
    wrong = [value for value in VALUES if not is_taken(attribute.type.kind, value)]
    for value in [*wrong, *([ABSENT] if attribute.is_required else [])]:
        with pytest.raises(InvalidGraph, match=rf"attribute '{name}' \(got .*; wanted .*\)"):
            bind(given(case, name, value))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy's, for divisions by zero and overflows
@pytest.mark.parametrize(("op", "name"), DECLARED)
def test_a_value_that_is_taken_runs(op: str, name: str) -> None:
    for value in [*VALUES, ABSENT]:
        case = given(example(op, name), name, value)
        try:
            bind(case)
        except ShardplanError:
            continue
        Trial(OPS[op], case)


@pytest.mark.parametrize("op", OPS)
def test_an_attribute_that_the_row_does_not_declare_is_refused(op: str) -> None:
    names = [attribute.name for attribute in OPS[op].attrs]
    assert len(set(names)) == len(names)
    with pytest.raises(InvalidGraph, match="unknown attribute"):
        bind(given(example(op, ""), "nobodys", 1))


def test_cases_have_the_attributes_that_rows_declare() -> None:
    """A default is what a case without the attribute has: every attribute is given in some case or has a default."""
    declared = {(row.name, attribute.name): attribute for row in OPS.values() for attribute in row.attrs}
    used = {(case.op, name) for case in CASES for name in case.attrs}
    assert used <= declared.keys()
    assert {key for key, attribute in declared.items() if attribute.is_required} <= used


@pytest.mark.parametrize("value", VALUES)
def test_an_op_of_a_documents_own_rule_may_have_any_attribute(value: object) -> None:
    """Nothing reads it: it is kept, and distinguishes the op from others."""
    types = CASES[0].operands
    rule = bind_op("our_own", types, types, attrs={"scale": value}, notation="a b -> a b")
    assert rule == bind_op("our_own", types, types, attrs={}, notation="a b -> a b")
