"""The databases of the service's tests: the same tests run on SQLite and on a real PostgreSQL.

`make test ARGS=--databases=all` runs all of them on both.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from tests.testing.postgres_cluster import Cluster, Databases, running_cluster


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A server of PostgreSQL, for this process's tests."""
    with running_cluster() as found:
        yield found


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Both kinds where a module says that databases are what it is about, or all are asked for."""
    if "databases" in metafunc.fixturenames:
        both = metafunc.config.getoption("databases") == "all" or hasattr(metafunc.module, "ON_BOTH_DATABASES")
        kinds = ["sqlite", "postgresql"] if both else ["sqlite"]
        metafunc.parametrize("databases", kinds, indirect=True, scope="module")


@pytest.fixture(scope="module")
def databases(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Databases:
    """URLs of new databases."""
    if request.param == "postgresql":
        found: Cluster = request.getfixturevalue("cluster")
        return found.database
    folder, numbers = tmp_path_factory.mktemp("service"), count()
    return lambda: f"sqlite:///{folder}/{next(numbers)}.db"


@pytest.fixture
def database(databases: Databases) -> str:
    return databases()
