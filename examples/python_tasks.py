"""Functions for the python executor. Put this file where the agent can import it, and list it:

HETUFLOW_AGENT__PYTHON_MODULES=python_tasks PYTHONPATH=examples hetuflow-agent
"""

from __future__ import annotations

import asyncio
from datetime import date

from hetuflow_core.client import TaskContext, task


@task
def count_words(text: str, since: date, context: TaskContext) -> dict[str, int]:
    """Runs in a thread; `since` arrives as text and is converted. What it returns is the task's output."""
    context.logger.info("counting since %s", since)
    words = text.split()
    for number, word in enumerate(words, start=1):
        context.check_cancelled()  # raises once the task is cancelled or takes too long
        context.progress(100 * number / len(words), word)
        print(word)  # noqa: T201  goes to the log of the task
    return {"words": len(words)}


@task
async def poll(seconds: float = 0.1) -> str:
    """Runs on an event loop that all such tasks share: for work that mostly waits."""
    await asyncio.sleep(seconds)
    return "done"


@task(process=True)
def crunch(numbers: list[int]) -> int:
    """Runs in a process of its own: for work that is heavy, or must be killable whatever it does."""
    return sum(number * number for number in numbers)
