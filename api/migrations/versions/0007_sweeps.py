"""Capacity questions in the queue of plans, and which of them a plan was requested for."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.add_column("plans", sa.Column("kind", sa.String, nullable=False, server_default="plan"))
    op.add_column("plans", sa.Column("sweep", sa.BigInteger))
    op.drop_index("plans_waiting", "plans")
    op.create_index("plans_waiting", "plans", ["kind", "state", "tenant", "number"])
    op.create_index("plans_of_sweep", "plans", ["sweep", "state"])
