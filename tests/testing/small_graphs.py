"""Graphs of one or two ops, small enough to try every program."""

from __future__ import annotations

from planner.ir.graph import Graph
from tests.testing.graphs import Sketch


def product_and_relu() -> Graph:
    s = Sketch()
    made = s.op("matmul", [s.input(64, 512), s.input(512, 256)], (64, 256))
    return s.graph(s.op("relu", [made], (64, 256)))


def shared_input() -> Graph:
    s = Sketch()
    x = s.input(1024, 64)
    total = s.op("max", [x], (1024, 1), dims=[1], keepdim=True)
    return s.graph(s.op("subtract", [x, total], (1024, 64)))


def shared_result() -> Graph:
    s = Sketch()
    made = s.op("matmul", [s.input(256, 64), s.input(64, 512)], (256, 512))
    smooth = s.op("softmax", [made], (256, 512), dim=1)
    return s.graph(s.op("multiply", [made, smooth], (256, 512)))


def square() -> Graph:
    s = Sketch()
    made = s.op("sum", [s.input(64, 2048)], (2048,), dims=[0])
    return s.graph(s.op("multiply", [made, made], (2048,)))


def two_results() -> Graph:
    s = Sketch()
    halves = s.op("split", [s.input(512, 96)], (512, 48), (512, 48), dim=1)
    return s.graph(s.op("multiply", [halves, f"{halves}:1"], (512, 48)))


def one_unread_result() -> Graph:
    s = Sketch()
    halves = s.op("split", [s.input(4096)], (2048,), (2048,), dim=0)
    return s.graph(s.op("exp", [f"{halves}:1"], (2048,)))


def vectors() -> Graph:
    s = Sketch()
    smooth = s.op("exp", [s.input(40000)], (40000,))
    return s.graph(s.op("add", [smooth, s.input(40000)], (40000,)))


def partial_sums() -> Graph:
    s = Sketch()
    total = s.op("sum", [s.input(512, 512)], (512,), dims=[0])
    return s.graph(s.op("multiply", [total], (512,), scalar=0.5))


def output_twice() -> Graph:
    s = Sketch()
    made = s.op("exp", [s.input(4096)], (4096,))
    return s.graph(made, made)


def read_and_returned() -> Graph:
    s = Sketch()
    made = s.op("sum", [s.input(64, 4096)], (4096,), dims=[0])
    return s.graph(s.op("exp", [made], (4096,)), made)


def ring() -> Graph:
    s = Sketch()
    operands = [s.input(512, 4), s.input(512, 4), s.input(512, 4)]
    return s.graph(s.op("scaled_dot_product_attention", operands, (512, 4), ring=True))


def convolved() -> Graph:
    s = Sketch()
    made = s.op("convolution", [s.input(1, 1, 6000), s.input(1, 1, 5)], (1, 1, 6000), padding=[2])
    return s.graph(s.op("max_pool", [made], (1, 1, 3000), size=[3], stride=[2], padding=[1]))
