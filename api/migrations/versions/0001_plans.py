"""Plans, outcomes, events, idempotency keys, API keys and workers."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

COUNTER = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    _plans()
    _outcomes_and_events()
    _callers()
    op.create_table(
        "workers",
        sa.Column("id", sa.String, primary_key=True),
        sa.Column("host", sa.String, nullable=False),
        sa.Column("seen_at", sa.Float, nullable=False),
    )


def _plans() -> None:
    op.create_table(
        "plans",
        sa.Column("number", COUNTER, primary_key=True),
        sa.Column("tenant", sa.String, nullable=False),
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("name", sa.String, nullable=False),
        sa.Column("ask", sa.LargeBinary, nullable=False),
        sa.Column("run", sa.Integer, nullable=False),
        sa.Column("state", sa.String, nullable=False),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("started_at", sa.Float),
        sa.Column("holder", sa.String),
        sa.Column("lease_until", sa.Float),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("progress", sa.String),
        sa.UniqueConstraint("tenant", "id"),
        sqlite_autoincrement=True,
    )
    op.create_index("plans_in_line", "plans", ["state", "lease_until", "number"])


def _outcomes_and_events() -> None:
    op.create_table(
        "outcomes",
        sa.Column("number", sa.BigInteger, primary_key=True),
        sa.Column("run", sa.Integer, primary_key=True),
        sa.Column("status", sa.String, nullable=False),
        sa.Column("cause", sa.String),
        sa.Column("document", sa.LargeBinary),
        sa.Column("ended_at", sa.Float, nullable=False),
        sa.ForeignKeyConstraint(["number"], ["plans.number"]),
    )
    op.create_table(
        "events",
        sa.Column("seq", COUNTER, primary_key=True),
        sa.Column("number", sa.BigInteger, nullable=False),
        sa.Column("kind", sa.String, nullable=False),
        sa.Column("data", sa.String, nullable=False),
        sa.ForeignKeyConstraint(["number"], ["plans.number"]),
        sqlite_autoincrement=True,
    )
    op.create_index("events_of", "events", ["number", "seq"])


def _callers() -> None:
    op.create_table(
        "idempotency",
        sa.Column("tenant", sa.String, primary_key=True),
        sa.Column("key", sa.String, primary_key=True),
        sa.Column("body", sa.String(64), nullable=False),
        sa.Column("plan", sa.String(64), nullable=False),
    )
    op.create_table(
        "keys",
        sa.Column("id", sa.String, primary_key=True),
        sa.Column("tenant", sa.String, nullable=False),
        sa.Column("scope", sa.String, nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("revoked_at", sa.Float),
    )
