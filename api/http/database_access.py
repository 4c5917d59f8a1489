"""Where a handler reads the store: a file of SQLite at once, since writers never hold up its readers and the reading is
shorter than the way to a thread and back; PostgreSQL in a thread, as its answer comes over a network."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from starlette.concurrency import run_in_threadpool

from api.service import Service

Given = ParamSpec("Given")
Found = TypeVar("Found")


async def read_database(
    service: Service, look: Callable[Given, Found], *args: Given.args, **kwargs: Given.kwargs
) -> Found:
    """What `look` finds."""
    if service.store.is_sqlite:
        return look(*args, **kwargs)
    return await run_in_threadpool(look, *args, **kwargs)
