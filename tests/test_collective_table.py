"""One table of collectives: every layer has the entries that it needs, and no other module names a collective."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

import pytest

from planner.choose.hardware.nccl_tests import COLLECTIVE_KINDS
from planner.choose.hardware.network import COLLECTIVE_TIMES
from planner.export.mlir.device_groups import DIMS
from planner.ir.collectives import BASIS, COLLECTIVES, AxesFrom, Collective, Kind
from planner.run.collectives import ARRAY_FUNCTIONS
from planner.run.group_ops import MOVEMENTS, REDUCTIONS
from planner.spmd import SPMD_OPS
from planner.spmd.collectives import BASIS_OPS, DIM_NAMES
from tests.testing.source_files import ROOT, python_files, relative

SENT = [kind for kind in BASIS if COLLECTIVES[kind].sends]

# table, its entries, the kinds it must have an entry for
TABLES: list[tuple[str, Iterable[str], Collection[Kind]]] = [
    ("what is true of a collective", COLLECTIVES, list(Kind)),
    ("times on a network", COLLECTIVE_TIMES, SENT),
    ("names in nccl-tests", COLLECTIVE_KINDS.values(), SENT),
    ("array functions", ARRAY_FUNCTIONS, BASIS),
    ("names of dims in the dialect", DIM_NAMES, BASIS),
    ("names of dims in HLO", DIMS, SENT),
    ("rows of the dialect", [row.name for row in BASIS_OPS], BASIS),
]

# Where a collective may be named: the tables, and what forms certain collectives out of others.
TABLE_FILES = [
    "planner/choose/hardware/nccl_tests.py",
    "planner/choose/hardware/network.py",
    "planner/export/mlir/device_groups.py",
    "planner/export/shard_map/collectives.py",
    "planner/export/torch_program/collectives.py",
    "planner/ir/collectives.py",
    "planner/run/collectives.py",
    "planner/spmd/collectives.py",
]
FORMS_COLLECTIVES = [
    "planner/rewrite/optimize/",
    "planner/reshard/documented_path.py",
    "planner/rewrite/lower_reshard.py",  # writes an exchange as the dialect's collectives
    "planner/export/sdy.py",  # makes an all_reduce part of the op before it
    "planner/frontends/mlir/rfc_collectives.py",  # the RFC calls the axes of an all_slice a sharding
    "planner/usecases/steps/",  # which collectives a training framework's step consists of
]


@pytest.mark.parametrize(("table", "entries", "kinds"), TABLES, ids=[name for name, _, _ in TABLES])
def test_every_layer_has_an_entry_for_every_collective(
    table: str, entries: Iterable[str], kinds: Collection[Kind]
) -> None:
    assert sorted(entries) == sorted(kinds), table


@pytest.mark.parametrize("kind", BASIS)
def test_entries_are_as_complete_as_the_row_requires(kind: Kind) -> None:
    row = COLLECTIVES[kind]
    assert row.kind is kind
    assert tuple(DIM_NAMES[kind]) == row.fields
    assert set(DIM_NAMES[kind].values()) <= set(SPMD_OPS[kind].attrs)
    assert kind in (REDUCTIONS if row.reduces else MOVEMENTS)
    assert (row.ring_passes > 0) == row.sends
    assert not row.phases or set(row.phases) < set(SENT)


def test_every_collective_has_a_call_of_jax() -> None:
    pytest.importorskip("jax", reason="jax is not installed: pip install shardplan[jax]")
    from planner.export.shard_map.collectives import LAX

    assert sorted(LAX) == sorted(BASIS)
    assert all((LAX[kind].reductions is not None) == COLLECTIVES[kind].reduces for kind in BASIS)


def test_every_collective_has_a_call_of_torch() -> None:
    pytest.importorskip("torch", reason="torch is not installed: pip install shardplan[torch]")
    from planner.export.torch_program.collectives import FUNCTIONAL

    assert sorted(FUNCTIONAL) == sorted(BASIS)
    assert all((FUNCTIONAL[kind].reductions is not None) == COLLECTIVES[kind].reduces for kind in BASIS)


def test_the_exchange_alone_is_no_basis_move() -> None:
    assert set(Kind) - set(BASIS) == {Kind.EXCHANGE}
    assert Collective(Kind.EXCHANGE, ()).is_exchange
    assert not any(Collective(kind, ()).is_exchange for kind in BASIS)
    assert all(isinstance(COLLECTIVES[kind].axes_from, AxesFrom) for kind in BASIS)


def test_only_the_tables_tell_collectives_apart() -> None:
    named = re.compile(rf"\bKind\.(?:{'|'.join(Kind.__members__)})\b")
    files = [relative(path) for path in python_files("planner", "api", "solvers") if named.search(path.read_text())]
    assert [path for path in files if not path.startswith(tuple(FORMS_COLLECTIVES))] == TABLE_FILES


def test_the_page_on_adding_a_collective_lists_the_tables() -> None:
    page = (ROOT / "docs/contributing/add-a-collective.md").read_text()
    assert sorted(re.findall(r"^\| `(planner/\S+\.py)`", page, re.MULTILINE)) == TABLE_FILES
