"""Intervals of equal layers are of one class, and what differs is not."""

from __future__ import annotations

from itertools import combinations

import pytest

from planner.documents.graphs import load_graph
from planner.documents.schemas import GraphDocument
from planner.frontends.zoo import import_zoo
from planner.ir.mesh import Mesh
from planner.pipeline_stages.content import describe_content
from planner.pipeline_stages.cuts import Units, find_units
from planner.pipeline_stages.interval_classes import IntervalClasses
from planner.pipeline_stages.stage_graph import extract_stage

MODELS = ["llama-7b", "mixtral-8x7b"]


def units_of(model: str, layers: int) -> Units:
    document = import_zoo(
        model,
        train="adam",
        layers=layers,
        dtype="f32",
        width=16,
        heads=4,
        feed_forward=32,
        vocabulary=24,
        batch=4,
        seq=8,
    )
    return find_units(load_graph(GraphDocument.model_validate(document), Mesh.parse("2")))


@pytest.mark.parametrize("model", MODELS)
def test_intervals_of_one_class_have_equal_steps(model: str) -> None:
    units = units_of(model, 4)
    classes = IntervalClasses(units)
    for first, last in combinations(range(units.count + 1), 2):
        graphs = [
            extract_stage(units, *span).make_step(4, (1, 0), is_split=False) for span in classes.list_equal(first, last)
        ]
        assert len({describe_content(graph) for graph in graphs}) == 1


def test_equal_layers_are_of_one_class_and_the_ends_are_not() -> None:
    units = units_of("llama-7b", 6)
    classes = IntervalClasses(units)
    inner = classes.list_equal(3, 7)
    assert inner == [(first, first + 4) for first in range(1, units.count - 4, 2)]
    for first, last in ((0, 4), (units.count - 4, units.count)):
        assert classes.list_equal(first, last) == [(first, last)]
