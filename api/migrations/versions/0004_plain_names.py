"""Columns have the names that the documents use."""

from __future__ import annotations

from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.execute("ALTER TABLE outcomes RENAME COLUMN cause TO error")
