"""What a real agent is given to run within its own process."""

from __future__ import annotations

import os

from hetuflow_core.client.task import task


@task
def signal(path: str) -> None:
    """Write a line into a named pipe: this runs now."""
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.write(descriptor, b"\n")
    finally:
        os.close(descriptor)


@task
async def nothing() -> None:
    """Be over at once."""
