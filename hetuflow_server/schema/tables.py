"""The tables as SQLAlchemy Core definitions; migrations must equal them, and a test proves it.

`job_tables` holds what people define, `key_tables` who may ask, `cluster_tables` what servers and agents know
of each other, `queue_tables` what is written per execution, `daemon_tables` the slots of what is kept
running, `flow_tables` where runs of flows stand, `log_tables` what tasks say, `artifact_tables` which files
they leave, `secret_tables` what tasks are told and nobody else, `event_tables` what has happened elsewhere,
`audit_tables` what people did, `webhook_tables` whom else to tell.

No foreign key points to a partitioned table or to an instance: dropping a partition would be refused or would
lock the live table. The queue's tables point nowhere at all, because a foreign key would lock the namespace
or job row on every insert; `doctor` checks those references.
"""

from hetuflow_server.artifacts import tables as artifact_tables
from hetuflow_server.audit import tables as audit_tables
from hetuflow_server.cluster import tables as cluster_tables
from hetuflow_server.daemons import tables as daemon_tables
from hetuflow_server.events import tables as event_tables
from hetuflow_server.flows import tables as flow_tables
from hetuflow_server.identity.keys import tables as key_tables
from hetuflow_server.jobs import tables as job_tables
from hetuflow_server.logs import tables as log_tables
from hetuflow_server.postgres.table_base import metadata
from hetuflow_server.queue import tables as queue_tables
from hetuflow_server.secrets import tables as secret_tables
from hetuflow_server.tasks.stream import tables as task_stream_tables
from hetuflow_server.webhooks import tables as webhook_tables

__all__ = [
    "artifact_tables",
    "audit_tables",
    "cluster_tables",
    "daemon_tables",
    "event_tables",
    "flow_tables",
    "job_tables",
    "key_tables",
    "log_tables",
    "metadata",
    "queue_tables",
    "secret_tables",
    "task_stream_tables",
    "webhook_tables",
]
