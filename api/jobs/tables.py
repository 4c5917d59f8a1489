"""The tables: every plan that was asked for, what is heard of it, and its one outcome.

A row of `plans` is one question of one tenant, by its content id; `run` counts how often it was asked anew after it
was cancelled or had failed. `api/migrations` makes them; a test holds the two together.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    Float,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    UniqueConstraint,
)

metadata = MetaData()

COUNTER = BigInteger().with_variant(Integer, "sqlite")
"""Of rows that are numbered as they come; SQLite numbers only what it calls INTEGER."""

plans = Table(
    "plans",
    metadata,
    Column("number", COUNTER, primary_key=True),
    Column("tenant", String, nullable=False),
    Column("id", String(64), nullable=False),
    Column("name", String, nullable=False),
    Column("ask", LargeBinary, nullable=False),
    Column("run", Integer, nullable=False),
    Column("state", String, nullable=False),  # queued, running, done
    Column("created_at", Float, nullable=False),
    Column("started_at", Float),
    Column("holder", String),  # the claim of a worker, and until when it is believed
    Column("lease_until", Float),
    Column("attempts", Integer, nullable=False),
    Column("progress", String),
    UniqueConstraint("tenant", "id"),
    Index("plans_in_line", "state", "lease_until", "number"),
    Index("plans_of", "tenant", "state"),
    sqlite_autoincrement=True,  # a number is never given twice, so that pages stay in order
)

outcomes = Table(
    "outcomes",
    metadata,
    Column("number", BigInteger, primary_key=True),
    Column("run", Integer, primary_key=True),
    Column("status", String, nullable=False),  # optimal, feasible, infeasible, timeout, cancelled, failed
    Column("error", String),
    Column("document", LargeBinary),
    Column("ended_at", Float, nullable=False),
    ForeignKeyConstraint(["number"], ["plans.number"]),
)

events = Table(
    "events",
    metadata,
    Column("seq", COUNTER, primary_key=True),
    Column("number", BigInteger, nullable=False),
    Column("kind", String, nullable=False),
    Column("data", String, nullable=False),
    ForeignKeyConstraint(["number"], ["plans.number"]),
    Index("events_of", "number", "seq"),
    sqlite_autoincrement=True,
)

idempotency = Table(
    "idempotency",
    metadata,
    Column("tenant", String, primary_key=True),
    Column("key", String, primary_key=True),
    Column("body", String(64), nullable=False),  # digest of what was sent with it
    Column("plan", String(64), nullable=False),
)

keys = Table(
    "keys",
    metadata,
    Column("id", String, primary_key=True),
    Column("tenant", String, nullable=False),
    Column("scope", String, nullable=False),
    Column("digest", String(64), nullable=False),
    Column("created_at", Float, nullable=False),
    Column("revoked_at", Float),
)

workers = Table(
    "workers",
    metadata,
    Column("id", String, primary_key=True),
    Column("host", String, nullable=False),
    Column("seen_at", Float, nullable=False),
)

webhooks = Table(
    "webhooks",
    metadata,
    Column("id", String, primary_key=True),
    Column("tenant", String, nullable=False),
    Column("key", String, nullable=False),  # the id of the API key that made it
    Column("url", String, nullable=False),
    Column("secret", String, nullable=False),  # as it is: signatures are made with it
    Column("created_at", Float, nullable=False),
    Index("webhooks_of", "tenant"),
)

deliveries = Table(
    "deliveries",
    metadata,
    Column("number", COUNTER, primary_key=True),
    Column("webhook", String, nullable=False),
    Column("body", String, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("due_at", Float, nullable=False),
    Column("created_at", Float, nullable=False),
    Index("deliveries_due", "due_at"),
    sqlite_autoincrement=True,
)
