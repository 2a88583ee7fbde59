"""Job files: read (`parse_documents`), check (`load_documents`), keep and compare (`to_document`, `digest`).

`documents.py` has what they become, `unsupported.py` what is refused for now.
"""

from hetuflow_core.jobfile.canonical import canonical, digest, to_document
from hetuflow_core.jobfile.documents import (
    Concurrency,
    Document,
    Executor,
    JobSpec,
    Kind,
    NamespaceSpec,
    OnLost,
    Run,
)
from hetuflow_core.jobfile.loading import from_document, load_documents
from hetuflow_core.jobfile.reading import (
    LARGEST_FILE,
    Format,
    RawDocument,
    parse_documents,
    raw_document,
    raw_documents,
)
from hetuflow_core.jobfile.yaml_writing import write_yaml

__all__ = [
    "LARGEST_FILE",
    "Concurrency",
    "Document",
    "Executor",
    "Format",
    "JobSpec",
    "Kind",
    "NamespaceSpec",
    "OnLost",
    "RawDocument",
    "Run",
    "canonical",
    "digest",
    "from_document",
    "load_documents",
    "parse_documents",
    "raw_document",
    "raw_documents",
    "to_document",
    "write_yaml",
]
