"""What alembic runs; everything it needs to know lives in `hetuflow_server.schema.migrate`."""

from alembic import context

from hetuflow_server.schema.migrate import run_in_environment

run_in_environment(context)
