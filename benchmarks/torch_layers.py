"""Compares modules and calls of PyTorch with torch's own numbers: values, gradients and the state that is left.

Each is imported, in f64, as a forward pass and as a training step, run whole, and run as its plan on a mesh of 2x2. Its
result is a weighted sum, so that every element counts; all its inputs have gradients. The outcomes are

    equal            values, gradients and buffers are torch's, whole and on the mesh
    replicated       a call has no row: the plan cannot be run, and names the call in a warning
    refused          a designed error
    cannot be traced a designed error that says that torch.export cannot trace the module, or torch not differentiate it
    wrong            other numbers: a defect
    failed           any other error: a defect

`--only NAME ...` compares some, and keeps the results of the others.
"""

from __future__ import annotations

import argparse
import copy
import logging
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks.import_coverage import is_not_exportable
from benchmarks.record import read_last, write
from planner import Request, pipeline
from planner.documents.graphs import load_graph
from planner.documents.schemas import GraphDocument, validate_document
from planner.errors import ShardplanError
from planner.frontends.uncovered_ops import UnknownOpWarning
from planner.ir.mesh import Mesh
from planner.judge.analysis import Analysis
from planner.run.executor import SINGLE_DEVICE, run_program, run_whole
from tests.testing.hardware import EAGER
from tests.testing.random_shards import reassembled

NAME = "torch_layers"
MESH = Mesh.parse("2x2")
STEPS = {"forward": None, "training": "sgd"}
OUTCOMES = ("equal", "replicated", "refused", "cannot be traced", "wrong", "failed")
TOLERANCE = 1e-8
RATE = 1e-3
"""The learning rate of `train="sgd"`."""


class WrongNumbers(Exception):
    """A result is not torch's."""


def build_module(make: Callable[..., Any], inputs: tuple[Any, ...]) -> Any:
    """Return a module of f64 without inputs whose result is one number: what it reads are its own parameters."""
    import torch

    class Weighed(torch.nn.Module):  # type: ignore[misc]  # untyped
        def __init__(self) -> None:
            super().__init__()
            self.names = [f"x{number}" for number in range(len(inputs))]
            for name, given in zip(self.names, inputs, strict=True):
                if isinstance(given, tuple):
                    self.register_parameter(name, torch.nn.Parameter(torch.randn(given, dtype=torch.float64)))
                else:
                    self.register_buffer(name, given.clone())
            self.part = make if is_function else make().double()

        def forward(self) -> Any:
            results = self.part(*(getattr(self, name) for name in self.names))
            leaves = [each for each in torch.utils._pytree.tree_leaves(results) if each.is_floating_point()]
            return sum(map(_weigh, leaves))

    torch.manual_seed(0)
    is_function = not _makes_module(make)
    module = Weighed()
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if name.startswith("part.") and tensor.is_floating_point():
            torch.nn.init.uniform_(tensor, 0.05, 0.6)
    return module


def _makes_module(make: Callable[..., Any]) -> bool:
    """Return whether a case is a class or a function without operands, not a function of tensors."""
    code = getattr(make, "__code__", None)
    return isinstance(make, type) or (code is not None and code.co_argcount == len(make.__defaults__ or ()))


def _weigh(result: Any) -> Any:
    import torch

    weights = torch.linspace(0.5, 1.5, result.numel(), dtype=torch.float64, device=result.device)
    return (result * weights.reshape(result.shape)).sum()


def compare(make: Callable[..., Any], inputs: tuple[Any, ...], train: str | None) -> None:
    """Raise WrongNumbers where the numbers of a module are not torch's, and what its import and its run raise."""
    from planner.frontends.torch import build_module_document

    module = build_module(make, inputs)
    there = copy.deepcopy(module)
    document = validate_document(GraphDocument, build_module_document(module, (), {}, train=train), "layer")
    tensors = dict(module.named_parameters()) | dict(module.named_buffers())
    arrays = {entry.id: tensors[entry.name].detach().numpy().copy() for entry in document.inputs}
    loss = there()
    if train:
        loss.backward()
    wanted = {"": loss.detach().numpy()} | {name: each.detach().numpy() for name, each in there.named_buffers()}
    for name, weight in there.named_parameters():
        wanted[name] = np.zeros(weight.shape) if weight.grad is None else weight.grad.numpy()
    followed = {entry.next: entry for entry in document.inputs if entry.next is not None}

    def check(where: str, output: str, got: Any) -> None:
        entry = followed.get(output)
        if entry is not None and entry.kind == "parameter":
            got = (arrays[entry.id] - got) / RATE  # the gradient, by the step
        _check_equal(f"{entry.name if entry else 'result'} {where}", got, wanted[entry.name if entry else ""])

    graph = load_graph(document, SINGLE_DEVICE)
    values = run_whole(graph, arrays, np, precision="declared")
    for output in graph.outputs:
        check("whole", output, values[output])
    plan = pipeline.plan(load_graph(document, MESH), MESH, EAGER, request=Request(gap=0.2))
    assert isinstance(plan.analysis, Analysis)
    program = plan.analysis.program
    ran = run_program(program, arrays, np, precision="declared")
    for place, output in enumerate(program.graph.outputs):
        got = reassembled(program, [outputs[place] for outputs in ran.outputs], np.float64, place)
        check("on the mesh", output, got)


def _check_equal(what: str, got: Any, want: Any) -> None:
    finite = np.abs(np.where(np.isfinite(want), want, 0))
    most = max(float(finite.max(initial=0)), 1e-3)
    if not np.allclose(got, want, rtol=TOLERANCE, atol=TOLERANCE * most, equal_nan=True):
        raise WrongNumbers(f"{what}: off by {float(np.abs(got - want).max()):.2e} of {most:.2e}")


def classify(make: Callable[..., Any], inputs: tuple[Any, ...], train: str | None) -> tuple[str, str]:
    """Return the outcome of a comparison, and the calls or the error that it names."""
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always")
        try:
            compare(make, inputs, train)
            return "equal", ""
        except WrongNumbers as error:
            return "wrong", str(error)
        except ShardplanError as error:
            unknown = " ".join(str(each.message) for each in raised if issubclass(each.category, UnknownOpWarning))
            if unknown:
                return "replicated", ", ".join(sorted(set(re.findall(r"(\S+?)(?: \([^;]*\))?, \d+x at", unknown))))
            return "cannot be traced" if is_not_exportable(str(error)) else "refused", str(error)[:300]
        except Exception as error:  # noqa: BLE001 - any other error is a defect, and counted
            return "failed", f"{type(error).__name__}: {error}"[:300]


def compare_all(names: list[str]) -> Iterator[dict[str, Any]]:
    """Yield the result so far after each case; of those that are not named, if any are, the last result is kept."""
    from benchmarks.torch_layer_cases import FAMILIES

    result = read_last(NAME) if names else None
    last = result["layers"] if result else []
    rows = {(row["layer"], row["step"]): row for row in last}
    for family, cases in FAMILIES.items():
        for name, (make, inputs) in cases.items():
            if names and name not in names:
                continue
            for step, train in STEPS.items():
                outcome, detail = classify(make, inputs, train)
                print(name, step, outcome, detail, flush=True)
                rows[name, step] = {"layer": name, "family": family, "step": step, "outcome": outcome, "detail": detail}
            yield {"layers": list(rows.values())}


def table(result: dict[str, Any]) -> str:
    """Return the counts by family, and the cases that are not equal, as a page shows them."""
    lines = [f"| family | step | cases | {' | '.join(OUTCOMES)} |", "|---" * (len(OUTCOMES) + 3) + "|"]
    counts = Counter((row["family"], row["step"], row["outcome"]) for row in result["layers"])
    for family in dict.fromkeys(row["family"] for row in result["layers"]):
        for step in STEPS:
            cells = [counts[family, step, outcome] for outcome in OUTCOMES]
            lines.append(f"| {family} | {step} | {sum(cells)} | {' | '.join(map(str, cells))} |")
    lines += ["", "| case | step | outcome | detail |", "|---|---|---|---|"]
    for row in result["layers"]:
        if row["outcome"] != "equal":
            detail = re.sub(r"[|`<>*_\[\]]", " ", " ".join(row["detail"].split()))[:140]
            lines.append(f"| {row['layer']} | {row['step']} | {row['outcome']} | {detail} |")
    return "\n".join(lines)


def main() -> None:
    """Compare cases and write results/torch_layers.json after each."""
    import torch

    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="+", default=[], help="names of cases")
    torch.set_num_threads(1)
    logging.disable(logging.CRITICAL)
    for result in compare_all(parser.parse_args().only):
        write(NAME, {"torch": torch.__version__.partition("+")[0], "mesh": MESH.notation} | result, show=False)


if __name__ == "__main__":
    main()
