"""Job files: read (`parse_documents`), check (`load_documents`), keep and compare (`to_document`, `digest`).

`documents.py` has all kinds. Each is one struct whose annotations define its keys (`hetuflow_core/fields`).
"""

from hetuflow_core.jobfile.calendars import CalendarSpec
from hetuflow_core.jobfile.documents import Document, canonical, digest, schedule_document, to_document
from hetuflow_core.jobfile.formats.yaml_writer import write_yaml
from hetuflow_core.jobfile.jobs import Concurrency, FlowNode, FlowSpec, JobSpec, OnLost
from hetuflow_core.jobfile.kinds import Kind
from hetuflow_core.jobfile.limits import LimitSpec
from hetuflow_core.jobfile.loading import from_document, load_documents, schedule_from_document
from hetuflow_core.jobfile.namespaces import NamespaceSpec
from hetuflow_core.jobfile.parsing import (
    LARGEST_FILE,
    Format,
    RawDocument,
    parse_documents,
    raw_document,
    raw_documents,
)
from hetuflow_core.jobfile.run import Executor, Run
from hetuflow_core.jobfile.secrets import SecretSource, SecretSpec
from hetuflow_core.jobfile.webhooks import WebhookSpec

__all__ = [
    "LARGEST_FILE",
    "CalendarSpec",
    "Concurrency",
    "Document",
    "Executor",
    "FlowNode",
    "FlowSpec",
    "Format",
    "JobSpec",
    "Kind",
    "LimitSpec",
    "NamespaceSpec",
    "OnLost",
    "RawDocument",
    "Run",
    "SecretSource",
    "SecretSpec",
    "WebhookSpec",
    "canonical",
    "digest",
    "from_document",
    "load_documents",
    "parse_documents",
    "raw_document",
    "raw_documents",
    "schedule_document",
    "schedule_from_document",
    "to_document",
    "write_yaml",
]
