"""Group commit: concurrent writes share few transactions, and a write that is refused or fails affects no other."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="the service is not installed: pip install shardplan[service]")

from sqlalchemy import Connection, delete, func, insert, select
from sqlalchemy.exc import IntegrityError

from api.jobs.database import Database
from api.jobs.group_commit import GroupCommit, WriteRejected
from api.jobs.tables import keys

PIECES = 24


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Database]:
    opened = Database(f"sqlite:///{tmp_path / 'service.db'}")
    yield opened
    opened.close()


def put(connection: Connection, name: str) -> str:
    kept = {"id": name, "tenant": "a", "scope": "read", "digest": "", "created_at": 0.0}
    connection.execute(insert(keys).values(kept))
    return name


def count(store: Database) -> int:
    with store.connect() as connection:
        return connection.execute(select(func.count()).select_from(keys)).scalar_one()


def all_at_once(together: GroupCommit, store: Database, names: list[str], begun: threading.Barrier) -> list[object]:
    """Every name written in a thread of its own, while another holds the writers' turn; the results, and errors."""

    def piece(name: str) -> object:
        def write(connection: Connection) -> str:
            if name.startswith("refused"):
                raise WriteRejected(name)
            return put(connection, name)

        begun.wait()
        try:
            return together.write(write)
        except (WriteRejected, IntegrityError, KeyError) as error:
            return type(error)

    with ThreadPoolExecutor(len(names)) as pool:
        with store.begin():
            waiting = [pool.submit(piece, name) for name in names]
            begun.wait()
        return [each.result() for each in waiting]


def test_all_waiting_writes_are_committed_and_get_their_own_result(store: Database) -> None:
    names = [f"{number}" for number in range(PIECES)]
    assert all_at_once(GroupCommit(store), store, names, threading.Barrier(PIECES + 1)) == names
    assert count(store) == PIECES


def test_a_refused_write_affects_no_other(store: Database) -> None:
    names = [f"refused {number}" if number % 3 == 0 else f"{number}" for number in range(PIECES)]
    found = all_at_once(GroupCommit(store), store, names, threading.Barrier(PIECES + 1))
    assert found == [WriteRejected if name.startswith("refused") else name for name in names]
    assert count(store) == PIECES - PIECES // 3


def test_a_failing_write_affects_no_other(store: Database) -> None:
    names = [*map(str, range(PIECES)), "0"]
    found = all_at_once(GroupCommit(store), store, names, threading.Barrier(PIECES + 2))
    assert sorted(map(str, found)) == sorted([*map(str, range(1, PIECES)), "0", str(IntegrityError)])
    assert count(store) == PIECES


def test_the_next_write_succeeds_after_a_failure(store: Database) -> None:
    together = GroupCommit(store)

    def broken(connection: Connection) -> None:
        put(connection, "lost")
        raise KeyError("a fault")

    for _ in range(2):
        with pytest.raises(KeyError):
            together.write(broken)
    assert count(store) == 0
    assert together.write(lambda connection: put(connection, "kept")) == "kept"
    with store.begin() as connection:
        assert connection.execute(delete(keys)).rowcount == 1
