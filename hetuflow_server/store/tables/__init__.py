"""The tables as SQLAlchemy Core definitions; migrations must equal them, and a test proves it.

`catalog` holds what people define, `access` who may ask, `cluster` what servers and agents know of each
other, `queue` what is written per execution, `daemons` the slots of what is kept running, `flows` where runs
of flows stand, `logs` what tasks say, `artifacts` which files they leave, `secrets` what tasks are told and
nobody else, `events` what has happened elsewhere, `audit` what people did, `webhooks` whom else
to tell.

No foreign key points to a partitioned table or to an instance: dropping a partition would be refused or would
lock the live table. The queue's tables point nowhere at all, because a foreign key would lock the namespace
or job row on every insert; `doctor` checks those references.
"""

from hetuflow_server.store.tables import (
    access,
    artifacts,
    audit,
    catalog,
    changes,
    cluster,
    daemons,
    event_functions,
    events,
    flows,
    logs,
    queue,
    secrets,
    webhooks,
)
from hetuflow_server.store.tables.base import metadata

__all__ = [
    "access",
    "artifacts",
    "audit",
    "catalog",
    "changes",
    "cluster",
    "daemons",
    "event_functions",
    "events",
    "flows",
    "logs",
    "metadata",
    "queue",
    "secrets",
    "webhooks",
]
