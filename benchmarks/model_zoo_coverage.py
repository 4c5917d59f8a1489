"""Measures which PyTorch models the torch frontend imports: tiny models of transformers, and plain modules.

What is measured, and the options: `benchmarks.import_coverage`.
"""

from __future__ import annotations

from typing import Any

from benchmarks.import_coverage import cover, coverage_table
from benchmarks.record import write
from benchmarks.transformers_models import import_type, list_types
from planner.frontends.torch import build_module_document

NAME = "model_zoo_coverage"


def import_model(name: str, train: str | None) -> dict[str, Any]:
    """Return the document of one of `benchmarks.plain_modules`, or of a tiny instance of a type of transformers."""
    import torch

    from benchmarks.plain_modules import MODULES  # here, because the table is read where torch is not installed

    if name not in MODULES:
        return import_type(name, train)
    module, args = MODULES[name](train is not None)
    with torch.set_grad_enabled(train is not None):
        return build_module_document(module.eval(), args, {}, train=train)


def table(result: dict[str, Any]) -> str:
    """Return the result as a page shows it."""
    return coverage_table(result)


def main() -> None:
    """Import models and write results/model_zoo_coverage.json after each of them."""
    import torch
    import transformers

    from benchmarks.plain_modules import MODULES

    torch.set_num_threads(1)
    versions = {"torch": torch.__version__.partition("+")[0], "transformers": transformers.__version__}
    import_model("lstm", "adamw")  # loads what every child process then has
    for result in cover(NAME, dict.fromkeys(MODULES, "module") | list_types(), import_model):
        write(NAME, {"versions": versions} | result, show=False)


if __name__ == "__main__":
    main()
