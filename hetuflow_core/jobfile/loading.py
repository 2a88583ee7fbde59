"""Raw documents to specs, with every fault of every document in one error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from hetuflow_core.errors import Fault, Invalid
from hetuflow_core.fields import shape_of
from hetuflow_core.fields.nodes import CODE, key_path, shortened
from hetuflow_core.fields.value_reader import ValueReader, did_you_mean, in_file_order, listed
from hetuflow_core.jobfile.documents import SPECS, Document
from hetuflow_core.jobfile.jobs import JobSpec
from hetuflow_core.jobfile.kinds import UNSUPPORTED_KINDS, Kind
from hetuflow_core.jobfile.namespaces import NamespaceSpec
from hetuflow_core.jobfile.parsing import RawDocument, raw_document
from hetuflow_core.schedule import ScheduleSpec

# A file that is wrong from end to end is not helped by more.
_MOST_FAULTS: Final = 200


def load_documents(
    documents: Sequence[RawDocument],
    *,
    kind: Kind | None = None,
) -> list[Document]:
    """Check documents and give their specs, in order; `kind` is what a document without one is."""
    faults: list[Fault] = []
    specs: list[Document] = []
    first: dict[tuple[str, ...], ValueReader] = {}
    for document in documents:
        given = ValueReader(document.root, document.source, document.path, [])
        spec = _read(given, kind)
        if spec is not None:
            _note_repetition(given, spec, first)
            specs.append(spec)
        faults += in_file_order(given.faults)
    if faults:
        raise Invalid(_summary(len(faults)), code=CODE, faults=faults[:_MOST_FAULTS])
    return specs


def from_document(document: Mapping[str, Any], *, path: str = "") -> JobSpec:
    """A job from plain data, such as the body of a request or what `to_document` gave."""
    (spec,) = load_documents([raw_document(document, path)], kind=Kind.JOB)
    if not isinstance(spec, JobSpec):
        fault = Fault(key_path(path, "kind"), f"must be job, not {spec.kind}.")
        raise Invalid(_summary(1), code=CODE, faults=[fault])
    return spec


def schedule_from_document(document: Mapping[str, Any], *, path: str = "") -> ScheduleSpec:
    """A schedule from plain data, such as the body of a request or what `schedule_document` gave."""
    raw = raw_document(document, path)
    given = ValueReader(raw.root, raw.source, raw.path, [])
    spec = shape_of(ScheduleSpec).read(given)
    if given.faults or spec is None:
        faults = in_file_order(given.faults)
        raise Invalid(_summary(len(faults)), code=CODE, faults=faults)
    return spec


def _read(given: ValueReader, default: Kind | None) -> Document | None:
    entries = given.entries()
    if entries is None:
        return None
    kind = _kind(given, entries.get("kind"), default)
    return None if kind is None else shape_of(SPECS[kind]).read(given)


def _kind(document: ValueReader, given: ValueReader | None, default: Kind | None) -> Kind | None:
    if given is None or given.node.value is None:
        if default is None:
            document.refuse('"kind" is missing: write kind: job.')
        return default
    text = given.text()
    if text is None:
        return None
    if text not in list(Kind):
        hint = (
            did_you_mean(text, Kind)
            or f": use {listed(known for known in Kind if known not in UNSUPPORTED_KINDS)}."
        )
        given.refuse(f'"{shortened(text)}" is not a kind of document{hint}')
        return None
    kind = Kind(text)
    if kind in UNSUPPORTED_KINDS:
        given.refuse(f"documents of kind {kind} are not supported by this version yet: remove this one.")
        return None
    return kind


def _note_repetition(given: ValueReader, spec: Document, first: dict[tuple[str, ...], ValueReader]) -> None:
    namespace = "" if isinstance(spec, NamespaceSpec) else spec.namespace
    if first.setdefault((spec.kind, namespace, spec.name), given) is not given:
        where = f" in the namespace {namespace}" if namespace else ""
        given.refuse(f'the {spec.kind} "{spec.name}"{where} is written twice: keep one of them.')


def _summary(count: int) -> str:
    if count == 1:
        return "The input has a fault: correct it and try again."
    more = f", {_MOST_FAULTS} of them shown" if count > _MOST_FAULTS else ""
    return f"The input has {count} faults{more}: correct them and try again."
