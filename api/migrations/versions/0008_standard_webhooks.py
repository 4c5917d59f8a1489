"""Secrets of webhooks in plain base64, as Standard Webhooks has them; until now they were of the kind for URLs."""

from __future__ import annotations

from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    encoded = "replace(replace(substr(secret, 7), '-', '+'), '_', '/')"
    op.execute(f"UPDATE webhooks SET secret = substr(secret, 1, 6) || {encoded} || '='")
