"""Efficiency by op class and size: the class of each op, and more work never takes less time."""

from __future__ import annotations

from types import MappingProxyType

import numpy as np
import pytest

from planner.choose.hardware import list_profiles, load_profile
from planner.choose.hardware.efficiency import ATTENTION, ATTENTION_BACKWARD, PRODUCT, Efficiency, work_class
from planner.errors import InvalidHardware
from planner.ir.graph import Op, TensorType
from planner.ops import OPS, bind_op

Shape = tuple[int, ...]
# op, operands' shapes, results' shapes, attributes, class
CLASSES: list[tuple[str, list[Shape], list[Shape], dict[str, object], str | None]] = [
    ("matmul", [(4, 6), (6, 8)], [(4, 8)], {}, PRODUCT),
    ("linear", [(2, 4, 6), (8, 6), (8,)], [(2, 4, 8)], {}, PRODUCT),
    ("addmm", [(8,), (4, 6), (6, 8)], [(4, 8)], {}, PRODUCT),
    ("einsum", [(2, 4, 6), (2, 4, 8)], [(6, 8)], {"equation": "b r m, b r n -> m n"}, PRODUCT),
    ("einsum", [(1, 4, 6), (1, 4, 8)], [(6, 8)], {"equation": "b r m, b r n -> m n"}, PRODUCT),
    ("matmul", [(4, 1), (1, 8)], [(4, 8)], {}, PRODUCT),
    ("einsum", [(4, 6), (4, 6)], [(4,)], {"equation": "m k, m k -> m"}, None),
    ("scaled_dot_product_attention", [(2, 8, 4)] * 3, [(2, 8, 4)], {"causal": True}, ATTENTION),
    ("scaled_dot_product_attention_backward", [(2, 8, 4)] * 4, [(2, 8, 4)] * 3, {}, ATTENTION_BACKWARD),
    ("softmax", [(4, 6)], [(4, 6)], {"dim": 1}, None),
    ("softmax_backward", [(4, 6), (4, 6)], [(4, 6)], {"dim": 1}, None),
    ("add", [(4, 6), (4, 6)], [(4, 6)], {}, None),
    ("layer_norm", [(4, 6), (6,), (6,)], [(4, 6)], {}, None),
]
# flops, shares
REFUSED: list[tuple[tuple[float, ...], tuple[float, ...]]] = [
    ((), ()),
    ((1.0,), (0.5, 0.5)),
    ((1.0, 1.0), (0.5, 0.5)),
    ((0.0, 1.0), (0.5, 0.5)),
    ((1.0,), (1.5,)),
    ((1.0, 1.5), (0.2, 0.9)),
]


@pytest.mark.parametrize(("name", "operands", "results", "attrs", "wanted"), CLASSES)
def test_an_op_has_the_class_of_its_rule(
    name: str, operands: list[Shape], results: list[Shape], attrs: dict[str, object], wanted: str | None
) -> None:
    read, made = (tuple(TensorType(shape, "f32") for shape in shapes) for shapes in (operands, results))
    rule = bind_op(name, read, made, attrs=attrs, notation=None)
    inputs = tuple(f"i{k}" for k in range(len(read)))
    assert work_class(Op(name, name, inputs, made, rule, MappingProxyType(attrs))) == wanted


@pytest.mark.parametrize("profile", list_profiles())
def test_more_work_of_a_class_never_takes_less_time(profile: str) -> None:
    for known in load_profile(profile).efficiency.values():
        flops = np.geomspace(known.flops[0] / 100, known.flops[-1] * 100, 400)
        seconds = [each / known.at(each) for each in flops]
        assert all(np.diff(seconds) > 0)
        assert [known.at(each) for each in known.flops] == pytest.approx(known.share)


@pytest.mark.parametrize(("flops", "share"), REFUSED)
def test_points_that_no_device_has_are_refused(flops: tuple[float, ...], share: tuple[float, ...]) -> None:
    with pytest.raises(InvalidHardware, match="points"):
        Efficiency(flops, share)


def test_causal_attention_makes_the_scores_that_its_last_queries_see() -> None:
    row = OPS["scaled_dot_product_attention"]
    sizes = {"s": 8, "t": 8, "e": 4, "v": 4}
    whole = row.count_flops(sizes)
    assert row.count_flops(sizes, {"causal": True}) == whole / 2
    part = {**sizes, "s": 2}
    assert row.count_flops(part, {"causal": True}) == row.count_flops(part) * (1 - 2 / 16)


def test_a_window_leaves_the_scores_of_its_keys() -> None:
    row, sizes = OPS["scaled_dot_product_attention"], {"s": 8, "t": 8, "e": 4, "v": 4}
    whole = row.count_flops(sizes)
    assert row.count_flops(sizes, {"causal": True, "window": 8}) == whole / 2
    assert row.count_flops(sizes, {"causal": True, "window": 2}) == whole * (2 + 6 * 2) / 64
    assert row.count_flops({**sizes, "s": 2}, {"causal": True, "window": 2}) == whole * 2 * 2 / 64
