"""Job files: read (`parse_documents`), check (`load_documents`), keep and compare (`to_document`, `digest`).

`documents.py` has what they become, `unsupported.py` what is refused for now.
"""

from hetuflow_core.jobfile.canonical import canonical, digest, to_document
from hetuflow_core.jobfile.documents import (
    CalendarSpec,
    Concurrency,
    Document,
    Executor,
    FlowNode,
    FlowSpec,
    JobSpec,
    Kind,
    LimitSpec,
    NamespaceSpec,
    OnLost,
    Run,
    SecretSource,
    SecretSpec,
    WebhookSpec,
)
from hetuflow_core.jobfile.loading import from_document, load_documents, schedule_from_document
from hetuflow_core.jobfile.reading import (
    LARGEST_FILE,
    Format,
    RawDocument,
    parse_documents,
    raw_document,
    raw_documents,
)
from hetuflow_core.jobfile.schedule_document import schedule_document
from hetuflow_core.jobfile.yaml_writing import write_yaml

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
