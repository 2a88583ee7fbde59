"""`run.artifacts`: files that go with a task."""

from __future__ import annotations

import re
from typing import Final

from hetuflow_core.artifact_paths import is_pattern, path_fault
from hetuflow_core.fields.value_reader import ValueReader, each
from hetuflow_core.jobfile.documents import ArtifactOrigin, ArtifactSpec, InputSpec
from hetuflow_core.jobfile.readers.names import read_name
from hetuflow_core.jobfile.readers.templates import read_template

ARTIFACT_KEYS: Final = ("inputs", "outputs")
_MOST: Final = 100
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def read_artifacts(given: ValueReader) -> ArtifactSpec | None:
    section = given.section(ARTIFACT_KEYS)
    if section is None:
        return None
    inputs: tuple[InputSpec, ...] = section.read("inputs", lambda given: each(given, _input), ())
    outputs: tuple[str, ...] = section.read("outputs", lambda given: each(given, _path), ())
    for what, files in (("inputs", inputs), ("outputs", outputs)):
        if len(files) > _MOST:
            given.refuse(f"has more than {_MOST} {what}: use patterns, or pack files together.")
    if len({file.path for file in inputs}) < len(inputs):
        given.refuse("names an input twice: give each its own path.")
    return ArtifactSpec(inputs=inputs, outputs=tuple(sorted(set(outputs))))


def _input(given: ValueReader) -> InputSpec | None:
    section = given.section(("path", "content", "from"))
    if section is None:
        return None
    path = section.require("path", _plain_path, "say where the file is to lie")
    content = section.read("content", read_template, None)
    origin = section.read("from", _origin, None)
    if ("content" in section.present) == ("from" in section.present):
        given.refuse("needs either content or from: write one of them.")
        return None
    if path is None or (content is None and origin is None):
        return None
    return InputSpec(path=path, content=content, origin=origin)


def _origin(given: ValueReader) -> ArtifactOrigin | None:
    section = given.section(("job", "task", "path"))
    if section is None:
        return None
    path = section.require("path", _plain_path, "name the artifact")
    job = section.read("job", read_name, None)
    task = section.read("task", _task, None)
    if ("job" in section.present) == ("task" in section.present):
        given.refuse("needs either job or task: write one of them.")
        return None
    return ArtifactOrigin(path=path, job=job, task=task) if path is not None else None


def _task(given: ValueReader) -> str | None:
    text = read_template(given)
    if text is not None and "{{" not in text and _UUID.fullmatch(text) is None:
        given.refuse("must be the id of a task, or an expression that gives one.")
        return None
    return text


def _plain_path(given: ValueReader) -> str | None:
    path = _path(given)
    if path is not None and is_pattern(path):
        given.refuse("must be one file, not a pattern.")
        return None
    return path


def _path(given: ValueReader) -> str | None:
    path = given.text()
    fault = None if path is None else path_fault(path)
    if fault is not None:
        given.refuse(fault)
        return None
    return path
