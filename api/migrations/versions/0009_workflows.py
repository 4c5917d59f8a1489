"""Who does which plan next is for DBOS to say: no leases that end, and none of the indexes by which it was decided."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    for index in ("plans_in_line", "plans_waiting", "plans_started"):
        op.drop_index(index, "plans")
    op.drop_column("plans", "lease_until")
    op.create_index("plans_in_line", "plans", ["state", "number"])
    op.add_column("workers", sa.Column("slots", sa.Integer, nullable=False, server_default="1"))
