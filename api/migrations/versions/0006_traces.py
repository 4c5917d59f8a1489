"""The trace that a plan's request belongs to."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.add_column("plans", sa.Column("traceparent", sa.String(55)))
