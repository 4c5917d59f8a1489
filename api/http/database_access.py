"""Runs database reads of handlers: on the event loop for SQLite, in a thread for PostgreSQL.

A read of an SQLite file never waits for a writer and takes less time than handing it to a thread. PostgreSQL answers
over a network, which would block the loop.
"""

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
    """Return what `look` returns."""
    if service.store.is_sqlite:
        return look(*args, **kwargs)
    return await run_in_threadpool(look, *args, **kwargs)
