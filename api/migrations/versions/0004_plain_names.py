"""Columns with the names that code and documents use."""

from __future__ import annotations

from alembic import op

revision = "0004"
down_revision = "0003"

# table, old name, new name
RENAMED = [
    ("plans", "ask", "request"),
    ("plans", "run", "generation"),
    ("plans", "holder", "lease_owner"),
    ("outcomes", "run", "generation"),
    ("outcomes", "cause", "error"),
]


def upgrade() -> None:
    for table, old, new in RENAMED:
        op.execute(f"ALTER TABLE {table} RENAME COLUMN {old} TO {new}")
