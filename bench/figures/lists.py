"""What a page of tasks costs when a lot has happened before.

The list that `GET /tasks` answers from, without HTTP: its first page, one from the middle, and filtered by
namespace, job and status, on a database with many finished tasks in 90 daily partitions. One of a status that
there is none of reads as many rows as a page may, and says from where to go on.

Held against the same pages where there are 12,000 tasks in one partition, measured in turns. The database is
the one `claim-history` was measured on, if it was: to fill it takes longer than both figures.
"""

from __future__ import annotations

import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import timedelta

from bench.figure import Aim, BenchFailed, Context, Figure, Limit, Line
from bench.figures.claim_history import PARTITIONS, SMOKE_PARTITIONS, load_finished, oldest_of, past
from bench.samples import percentile
from bench.scene import Scene, scene
from bench.simulated import in_event_loop
from hetuflow_core import ids
from hetuflow_core.access.roles import Role
from hetuflow_core.runtime.clock import SystemClock
from hetuflow_server.requests.context import RequestContext
from hetuflow_server.requests.principal import Principal
from hetuflow_server.tasks.lists.service import Place
from hetuflow_server.tasks.lists.store import TaskFilter

_AIM = Aim(3.0, at_least=False)
# More than are counted, so that both count as many.
_FEW = 12_000
# By pace.
_MANY = (2_000, 50_000, 1_000_000, 5_000_000)
_PAGE, _CAP = 100, 10_000
_TIMES = 15
_WHO = RequestContext.internal(Principal.with_role("bench", Role.ADMIN))

_PAGES = {
    "first": TaskFilter(),
    "of a namespace": TaskFilter(namespace="default"),
    "of a job": TaskFilter(job="bench"),
    "succeeded": TaskFilter(namespace="default", status="succeeded"),
    "running": TaskFilter(status="running"),
}
_MIDDLE, _RARE_STATUS = "from the middle", "a rare status"


@dataclass(slots=True)
class _Lists:
    scene: Scene
    span: timedelta
    costs: dict[str, list[float]] = field(default_factory=dict)

    async def measure(self) -> None:
        middle = ids.first_id_at(SystemClock().now() - self.span / 2)
        for what, wanted in _PAGES.items():
            await self._time(what, wanted, None)
        await self._time(_MIDDLE, TaskFilter(namespace="default"), Place(middle, 0, capped=True))
        await self._time(_RARE_STATUS, TaskFilter(status="skipped"), None)

    async def _time(self, what: str, wanted: TaskFilter, place: Place | None) -> None:
        took = []
        for _ in range(_TIMES):
            began = time.perf_counter()
            page = await self.scene.services.task_lists.page(_WHO, wanted, limit=_PAGE, cap=_CAP, place=place)
            took.append((time.perf_counter() - began) * 1_000)
            if wanted.status in {None, "succeeded"} and len(page.tasks) != _PAGE:
                raise BenchFailed(f"The page {what} has {len(page.tasks)} tasks.")
        self.costs.setdefault(what, []).append(percentile(took, 50))


def measure(context: Context) -> Figure:
    few, many = in_event_loop(lambda: _measure(context))
    lines = [
        Line(
            f"{what}, {many.scene.what}",
            "ms",
            costs,
            Limit(f"{what}, {few.scene.what}", few.costs[what]),
            # That one reads 20,000 rows where there are so many: a bound of its own, and no ratio.
            None if what == _RARE_STATUS else _AIM,
        )
        for what, costs in many.costs.items()
    ]
    return Figure("lists", lines)


async def _measure(context: Context) -> tuple[_Lists, _Lists]:
    async with AsyncExitStack() as stack:
        count = context.pace.unless_smoke(_FEW, 1_000)
        what = f"{count:,} finished in 1 partition"
        few = await stack.enter_async_context(scene(context, what, f"lists_{count}"))
        await load_finished(few.services.database, few.job, count, 1)
        many = await stack.enter_async_context(past(context, context.pace.sized(*_MANY)))
        # Where all were loaded within a day, the middle is so close that half a page is behind it.
        days = context.pace.unless_smoke(PARTITIONS, SMOKE_PARTITIONS)
        lists = [
            _Lists(few, timedelta(seconds=1)),
            _Lists(many, SystemClock().now() - oldest_of(days)),
        ]
        for repetition in range(context.pace.repetitions + 1):
            context.say(f"lists, repetition {repetition}")
            for each in lists:
                await each.measure()
        # The first one made plans and filled caches.
        for each in lists:
            each.costs = {what: costs[1:] for what, costs in each.costs.items()}
        return lists[0], lists[1]
