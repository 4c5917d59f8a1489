"""What alembic runs around the steps: on the connection that `migrate` was given, in its transaction."""

from __future__ import annotations

from alembic import context

from api.jobs.tables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
context.run_migrations()
