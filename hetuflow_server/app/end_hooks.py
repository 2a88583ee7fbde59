"""The end hooks of a server, and with them the lock order of every transaction that ends tasks."""

from __future__ import annotations

import random

from hetuflow_server.daemons.on_task_end import DaemonsOnTaskEnd
from hetuflow_server.daemons.slots import DaemonSlots
from hetuflow_server.flows.advance import FlowAdvance
from hetuflow_server.flows.on_task_end import FlowsOnTaskEnd
from hetuflow_server.jobs.versions import JobVersions
from hetuflow_server.queue.capacity import Capacity
from hetuflow_server.queue.end_hooks import EndHooks
from hetuflow_server.queue.on_task_end import LimitsOnTaskEnd, RetriesOnTaskEnd
from hetuflow_server.schedules.backfills.fires import BackfillFires
from hetuflow_server.schedules.on_task_end import BackfillsOnTaskEnd, OverlapsOnTaskEnd, UpstreamsOnTaskEnd
from hetuflow_server.webhooks.on_task_end import WebhooksOnTaskEnd


class TaskEndParts:
    """The hooks, and the parts behind them that loops and services use as well."""

    def __init__(self, versions: JobVersions, capacity: Capacity, rng: random.Random) -> None:
        self.flow_advance = FlowAdvance(versions)
        self.backfill_fires = BackfillFires(versions)
        self.daemon_slots = DaemonSlots(versions, capacity.classes)
        self.webhooks = WebhooksOnTaskEnd()
        # This is the lock order: hooks lock from top to bottom, and each locks its rows by id. After that,
        # hooks follow from bottom to top. The place of a hook that locks nothing says when it follows.
        self.hooks = EndHooks(
            before_tasks=[
                # Locks flow runs. Follows last: starts the next nodes.
                FlowsOnTaskEnd(self.flow_advance),
            ],
            # Schedules come next. Edits lock them before tasks; hooks skip schedules that are locked.
            # Then the finisher locks tasks, then instances, and ends them.
            after_tasks=[
                # Locks nothing. Follows by releasing fires that waited, except in schedules that are locked.
                OverlapsOnTaskEnd(),
                # Locks nothing. Follows by creating the tasks of jobs that run after other jobs.
                UpstreamsOnTaskEnd(versions),
                # Inserts deliveries, which refer to webhooks.
                self.webhooks,
                # Locks backfills. Follows by creating their next tasks.
                BackfillsOnTaskEnd(self.backfill_fires),
                # Locks daemon slots. Follows by creating the next instances in them.
                DaemonsOnTaskEnd(self.daemon_slots, rng),
                # Locks limits, which every claim needs, so they are locked last.
                LimitsOnTaskEnd(capacity),
                # Locks nothing. Follows first, by creating the next attempts.
                RetriesOnTaskEnd(),
            ],
        )
