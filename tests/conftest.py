"""Options and hooks of every test run: which tests it has, which seeds they try, and where they run.

`--run quick` leaves out tests marked `slow` and takes only the day's window of seeds (`tests/testing/seeds.py`);
without it everything runs. Tests of a framework that is not installed are left out, and the header says so. Cases of
hypothesis are the same on every run. The longest tests come first, so that no worker is left with them at the end.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Sequence
from importlib.util import find_spec

import pytest
from hypothesis import settings

from tests.testing import require_all
from tests.testing.seeds import EVERYTHING, QUICK, RUN, SEED, first_of_today

settings.register_profile("house", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("house")

FRAMEWORKS = ("torch", "transformers", "jax", "jaxlib", "onnx")
MISSING = tuple(name for name in FRAMEWORKS if find_spec(name) is None)
JOURNEYS = ("test_readme.py", "test_tutorials.py")


def pytest_addoption(parser: pytest.Parser) -> None:
    about = "quick: no slow tests, and the day's window of seeds alone; everything: all tests, all seeds"
    parser.addoption("--run", choices=(QUICK, EVERYTHING), default=EVERYTHING, help=about)
    about = f"the first seed of the window, in place of the day's (or {SEED} in the environment)"
    parser.addoption("--seed", type=int, help=about)
    about = "which databases the service is tested on: 'all' runs every test of it on PostgreSQL too"
    parser.addoption("--databases", choices=("some", "all"), default="some", help=about)


def pytest_configure(config: pytest.Config) -> None:
    """Fixes run and window in the environment, which pytest-xdist's workers inherit: they collect the same tests,
    though the date may change between their starts."""
    asked = config.getoption("seed")
    if asked is not None:
        os.environ[SEED] = str(asked)
    os.environ.setdefault(SEED, str(first_of_today()))
    os.environ[RUN] = config.getoption("run")
    if require_all.is_required():
        config.pluginmanager.register(require_all)


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """One more than there are cores: tests of servers and child processes mostly wait."""
    return (os.cpu_count() or 1) + 1


def pytest_report_header(config: pytest.Config) -> list[str]:
    seed = os.environ[SEED]
    lines = [f"run: {config.getoption('run')}; seeds: window from {seed} (once more: {SEED}={seed})"]
    if MISSING:
        lines.append(f"left out: tests of {', '.join(MISSING)}, which are not installed (extras torch, jax, onnx)")
    return lines


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """A module that is skipped as a whole for want of a framework is left out in silence; the header has said it."""
    report = yield
    if report.skipped and isinstance(report.longrepr, tuple):
        reason = report.longrepr[2].removeprefix("Skipped: ")
        if reason.startswith(tuple(f"{name} is not installed" for name in MISSING)):
            report.outcome, report.longrepr = "passed", None
    return report


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.name not in JOURNEYS)
    if config.getoption("run") == QUICK:
        _leave_out(config, items, lambda item: item.get_closest_marker("slow") or item.get_closest_marker("gpu"))
    _leave_out(config, items, _lacks_a_framework)
    on_gpu = [item for item in items if item.get_closest_marker("gpu")]
    if on_gpu and (reason := _why_no_gpu()):
        for item in on_gpu:
            item.add_marker(pytest.mark.skip(reason=reason))


def _leave_out(config: pytest.Config, items: list[pytest.Item], is_left_out: Callable[[pytest.Item], object]) -> None:
    left_out: Sequence[pytest.Item] = [item for item in items if is_left_out(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]


def _lacks_a_framework(item: pytest.Item) -> bool:
    return any(name in MISSING for mark in item.iter_markers("frameworks") for name in mark.args)


def _why_no_gpu() -> str | None:
    if find_spec("cupy") is None:
        return "cupy is not installed (extras cuda12, cuda13)"
    import cupy

    try:
        return None if cupy.cuda.is_available() else "no CUDA device"
    except cupy.cuda.runtime.CUDARuntimeError as error:  # a driver too old, for one
        return f"CUDA: {error}"
