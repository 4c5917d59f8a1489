"""Indexes for the turns of tenants, and a count of the child processes that died of a plan."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.add_column("plans", sa.Column("child_deaths", sa.Integer, nullable=False, server_default="0"))
    op.create_index("plans_waiting", "plans", ["state", "tenant", "number"])
    op.create_index("plans_started", "plans", ["tenant", "started_at"])
