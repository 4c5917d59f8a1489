"""Runs database reads of handlers: on the event loop for SQLite, in a thread for PostgreSQL.

A read of an SQLite file never waits for a writer and takes less time than handing it to a thread. PostgreSQL answers
over a network, which would block the loop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from starlette.concurrency import run_in_threadpool

from api.service import Service

Params = ParamSpec("Params")
Result = TypeVar("Result")


async def read_database(
    service: Service, read: Callable[Params, Result], *args: Params.args, **kwargs: Params.kwargs
) -> Result:
    """Return what `look` returns."""
    if service.store.is_sqlite:
        return read(*args, **kwargs)
    return await run_in_threadpool(read, *args, **kwargs)
