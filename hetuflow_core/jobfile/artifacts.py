"""`run.artifacts`: files that go with a task."""

from __future__ import annotations

import re
from typing import Annotated, ClassVar, Final

import msgspec

from hetuflow_core.artifact_paths import is_pattern, path_fault
from hetuflow_core.fields import (
    NAME,
    Check,
    Key,
    OneOf,
    Section,
    distinct,
    json_schema,
    section,
    several,
    text_unless,
)
from hetuflow_core.templates.forms import TEMPLATE

_MOST: Final = 100
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_CONTENT_OR_FROM: Final = "needs either content or from: write one of them."
_JOB_OR_TASK: Final = "needs either job or task: write one of them."


def _plain_path_fault(path: str) -> str | None:
    fault = path_fault(path)
    return "must be one file, not a pattern." if fault is None and is_pattern(path) else fault


def _task_fault(text: str) -> str | None:
    if "{{" in text or _UUID.fullmatch(text):
        return None
    return "must be the id of a task, or an expression that gives one."


_PATH: Final = text_unless(_plain_path_fault, json_schema.TEXT, summary="path of a file")
_PATTERN: Final = text_unless(path_fault, json_schema.TEXT, summary="path or pattern")
_TASK: Final = text_unless(
    _task_fault, json_schema.TEMPLATE, read=TEMPLATE.read, summary="id of a task, or a template"
)


class ArtifactOrigin(msgspec.Struct, frozen=True, kw_only=True):
    """An artifact of an earlier task."""

    RULES: ClassVar = (OneOf(("job", "task"), _JOB_OR_TASK, _JOB_OR_TASK),)

    job: Annotated[str | None, NAME, Key("Job whose newest successful task has the artifact.")] = None
    task: Annotated[str | None, _TASK, Key("Task that has the artifact.")] = None
    path: Annotated[str, _PATH, Key("Path of the artifact.", missing="name the artifact")]


class InputSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A file that is there before the work begins; one of `content` (a template) and `origin` is set."""

    RULES: ClassVar = (OneOf(("content", "from"), _CONTENT_OR_FROM, _CONTENT_OR_FROM),)

    path: Annotated[str, _PATH, Key("Path below the work directory.", missing="say where the file is to lie")]
    content: Annotated[str | None, TEMPLATE, Key("Content of the file.")] = None
    origin: Annotated[ArtifactOrigin | None, Key("Artifact of an earlier task.")] = msgspec.field(
        name="from", default=None
    )


def _refuse_repeated(artifacts: ArtifactSpec, at: Section) -> None:
    if len({file.path for file in artifacts.inputs}) < len(artifacts.inputs):
        at.refuse("names an input twice: give each its own path.")


def _too_many(what: str) -> str:
    return f"has more than {_MOST} {what}: use patterns, or pack files together."


class ArtifactSpec(msgspec.Struct, frozen=True, kw_only=True):
    RULES: ClassVar = (Check(_refuse_repeated),)

    inputs: Annotated[
        tuple[InputSpec, ...],
        several(section(InputSpec), tuple, most=_MOST, too_many=_too_many("inputs")),
        Key("Files that the agent puts into the work directory before the work begins."),
    ] = ()
    outputs: Annotated[
        tuple[str, ...],
        several(_PATTERN, distinct, most=_MOST, too_many=_too_many("outputs")),
        Key("Files of the work directory that are kept when the work has ended."),
    ] = ()
