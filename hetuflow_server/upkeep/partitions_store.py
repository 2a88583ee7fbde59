"""The tables that are partitioned by day, with the rows that must stay when a partition expires."""

from __future__ import annotations

from hetuflow_server.postgres.partitions import Partitioned

TASKS = Partitioned(
    "sched_task",
    key="id",
    keep="finished_at IS NULL OR finished_at > %(cutoff)s",
    settled="finished_at IS NOT NULL",
    # Room for one more version of each row beside it: then an end writes no index.
    storage="WITH (fillfactor = 45)",
)
HISTORY = Partitioned("sched_task_instance_history", key="id", keep="finished_at > %(cutoff)s")
LOG_LENGTHS = Partitioned(
    "sched_log_length",
    key="instance_id",
    keep="updated_at > %(cutoff)s OR EXISTS (SELECT FROM sched_task_instance i WHERE i.id = instance_id)",
    # A log may be appended to for a while after its instance has finished.
    settled="updated_at < clock_timestamp() - interval '1 day'",
    storage="WITH (fillfactor = 70)",
)
ARTIFACTS = Partitioned(
    "sched_artifact",
    key="instance_id",
    keep="updated_at > %(cutoff)s OR EXISTS (SELECT FROM sched_task_instance i WHERE i.id = instance_id)",
    settled="stored = size",
)
ARTIFACT_CHUNKS = Partitioned(
    "sched_artifact_chunk",
    key="instance_id",
    keep="created_at > %(cutoff)s OR EXISTS (SELECT FROM sched_task_instance i WHERE i.id = instance_id)",
)
EVENTS = Partitioned(
    "sched_event",
    key="id",
    keep="created_at > %(cutoff)s OR EXISTS (SELECT FROM sched_event_todo t WHERE t.event_id = id)",
    # What is still to be matched, or counted in a window that is open, must stay in sight.
    settled=(
        "created_at < clock_timestamp() - interval '1 day' "
        "AND NOT EXISTS (SELECT FROM sched_event_todo t WHERE t.event_id = id)"
    ),
)
EVENT_EFFECTS = Partitioned(
    "sched_event_effect",
    key="event_id",
    keep="created_at > %(cutoff)s",
    # What an event is counted in may start a task later, and says so here.
    settled="created_at < clock_timestamp() - interval '1 day'",
)
# A run's nodes go with it, so they are looked at before the runs are.
FLOW_NODES = Partitioned(
    "sched_flow_node",
    key="flow_run_id",
    keep="EXISTS (SELECT FROM sched_flow_run r WHERE r.id = flow_run_id "
    "AND (r.finished_at IS NULL OR r.finished_at > %(cutoff)s))",
    settled="EXISTS (SELECT FROM sched_flow_run r WHERE r.id = flow_run_id AND r.finished_at IS NOT NULL)",
    storage="WITH (fillfactor = 70)",
)
FLOW_RUNS = Partitioned(
    "sched_flow_run",
    key="id",
    keep="finished_at IS NULL OR finished_at > %(cutoff)s",
    settled="finished_at IS NOT NULL",
    storage="WITH (fillfactor = 70)",
)
LOG_CHUNKS = Partitioned("sched_log_chunk", key="created_at", keep="created_at > %(cutoff)s", by_time=True)
