"""Cases of hypothesis are the same on every run; tests marked `gpu` skip where there is none; the longest come first,
so that no worker is left with them at the end."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
from hypothesis import settings

from tests.testing import require_all

settings.register_profile("house", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("house")


def _why_no_gpu() -> str | None:
    if find_spec("cupy") is None:
        return "cupy is not installed (extras cuda12, cuda13)"
    import cupy

    try:
        return None if cupy.cuda.is_available() else "no CUDA device"
    except cupy.cuda.runtime.CUDARuntimeError as error:  # a driver too old, for one
        return f"CUDA: {error}"


def pytest_addoption(parser: pytest.Parser) -> None:
    about = "which databases the service is tested on: 'all' runs every test of it on PostgreSQL too"
    parser.addoption("--databases", choices=("some", "all"), default="some", help=about)


def pytest_configure(config: pytest.Config) -> None:
    if require_all.is_required():
        config.pluginmanager.register(require_all)


JOURNEYS = ("test_readme.py", "test_tutorials.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.name not in JOURNEYS)
    on_gpu = [item for item in items if item.get_closest_marker("gpu")]
    if on_gpu and (reason := _why_no_gpu()):
        for item in on_gpu:
            item.add_marker(pytest.mark.skip(reason=reason))
