"""The tables: plans, their results and events, keys, workers and webhooks.

A row of `plans` is one request of one tenant, by its content id: for a plan, or for the sweep of a capacity question.
`generation` counts how often it was queued again after it was cancelled or had failed. `api/migrations` creates the
tables; a test compares the two.
"""

from __future__ import annotations

from typing import Literal

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Float,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    UniqueConstraint,
    and_,
)

JobKind = Literal["plan", "sweep"]
metadata = MetaData()

COUNTER = BigInteger().with_variant(Integer, "sqlite")
"""Rows numbered in order of insertion; SQLite numbers only a column of type INTEGER."""

plans = Table(
    "plans",
    metadata,
    Column("number", COUNTER, primary_key=True),
    Column("tenant", String, nullable=False),
    Column("id", String(64), nullable=False),
    Column("name", String, nullable=False),
    Column("request", LargeBinary, nullable=False),
    Column("generation", Integer, nullable=False),
    Column("state", String, nullable=False),  # queued, running, done
    Column("created_at", Float, nullable=False),
    Column("started_at", Float),
    Column("lease_owner", String),  # differs between two attempts, also of the same worker
    Column("attempts", Integer, nullable=False),  # that were neither ended nor given back
    Column("progress", String),
    Column("child_deaths", Integer, nullable=False, server_default="0"),
    Column("kind", String, nullable=False, server_default="plan"),  # plan, sweep
    Column("sweep", BigInteger),  # the number of the sweep that alone requested this plan
    Column("traceparent", String(55)),  # the span of the request (W3C Trace Context)
    UniqueConstraint("tenant", "id"),
    Index("plans_in_line", "state", "number"),
    Index("plans_of", "tenant", "state"),
    Index("plans_of_sweep", "sweep", "state"),
    sqlite_autoincrement=True,  # numbers are never reused, so that pages stay in order
)

outcomes = Table(
    "outcomes",
    metadata,
    Column("number", BigInteger, primary_key=True),
    Column("generation", Integer, primary_key=True),
    Column("status", String, nullable=False),  # optimal, feasible, infeasible, timeout, cancelled, failed
    Column("error", String),
    Column("document", LargeBinary),
    Column("ended_at", Float, nullable=False),
    ForeignKeyConstraint(["number"], ["plans.number"]),
)

IS_CURRENT_RESULT = and_(outcomes.c.number == plans.c.number, outcomes.c.generation == plans.c.generation)
"""Joins a plan with the result of its current generation."""

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
    Column("body", String(64), nullable=False),  # digest of the request's body
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
    Column("slots", Integer, nullable=False, server_default="1"),  # how many plans it solves at once
)

webhooks = Table(
    "webhooks",
    metadata,
    Column("id", String, primary_key=True),
    Column("tenant", String, nullable=False),
    Column("key", String, nullable=False),  # the id of the API key that created it
    Column("url", String, nullable=False),
    Column("secret", String, nullable=False),  # in plain text, because signatures need it
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


def is_recent(now: float, within_s: float) -> ColumnElement[bool]:
    """Return the condition that a worker has sent a heartbeat in the last seconds.

    One that is later than now was sent before the clock was set back, and tells nothing.
    """
    return workers.c.seen_at.between(now - within_s, now + within_s)
