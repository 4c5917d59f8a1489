"""An index that counts a tenant's queued plans without reading them."""

from __future__ import annotations

from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.create_index("plans_of", "plans", ["tenant", "state"])
