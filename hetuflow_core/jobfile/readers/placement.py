"""A job's `placement`: labels, affinity, anti-affinity, tolerations, resources and pool."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from hetuflow_core.durations import parse_size
from hetuflow_core.errors import Invalid
from hetuflow_core.fields.value_reader import LABEL_KEY, SectionReader, ValueReader, each
from hetuflow_core.jobfile.readers.unsupported import supported
from hetuflow_core.placement import (
    Affinity,
    AntiAffinity,
    Effect,
    Expression,
    Neighbour,
    Operator,
    Preference,
    Requirements,
    Resources,
    Toleration,
    TolerationOperator,
    UnlikedNeighbour,
    normalised,
)

POOL: Final = re.compile(r"[a-z0-9]([a-z0-9._-]{0,126}[a-z0-9])?")
_WHOLE: Final = re.compile(r"-?(0|[1-9][0-9]{0,17})")
_LABEL_EXPECTED: Final = "the name of a label"
MOST_CPU: Final = 100_000
MOST_GPU: Final = 10_000
MOST_WEIGHT: Final = 100


def read_requirements(given: ValueReader, unsupported: Mapping[str, str]) -> Requirements | None:
    section = given.section(("labels", "affinity", "anti_affinity", "tolerations", "resources", "pool"))
    if section is None:
        return None
    section = supported(section, "placement.", unsupported)
    return normalised(
        Requirements(
            labels=section.read("labels", ValueReader.labels, {}),
            affinity=section.read("affinity", _affinity, Affinity()),
            anti_affinity=section.read("anti_affinity", _anti_affinity, AntiAffinity()),
            tolerations=section.read("tolerations", lambda given: each(given, _toleration), ()),
            resources=section.read("resources", _resources, Resources()),
            pool=section.read("pool", lambda given: given.matching(POOL, "the name of a pool"), None),
        )
    )


def _affinity(given: ValueReader) -> Affinity | None:
    section = given.section(("required", "preferred"))
    if section is None:
        return None
    return Affinity(
        required=section.read("required", lambda given: each(given, _expression), ()),
        preferred=section.read("preferred", lambda given: each(given, _preference), ()),
    )


def _anti_affinity(given: ValueReader) -> AntiAffinity | None:
    section = given.section(("required", "preferred"))
    if section is None:
        return None
    return AntiAffinity(
        required=section.read("required", lambda given: each(given, _neighbour), ()),
        preferred=section.read("preferred", lambda given: each(given, _unliked), ()),
    )


def _neighbour(given: ValueReader) -> Neighbour | None:
    section = given.section(("jobs", "labels"))
    return _jobs(section) if section else None


def _unliked(given: ValueReader) -> UnlikedNeighbour | None:
    section = given.section(("weight", "jobs", "labels"))
    meant = _jobs(section) if section else None
    if section is None or meant is None:
        return None
    weight = section.require("weight", lambda given: given.integer(1, MOST_WEIGHT), "say what it is worth")
    return None if weight is None else UnlikedNeighbour(weight=weight, jobs=meant.jobs, labels=meant.labels)


def _jobs(section: SectionReader) -> Neighbour | None:
    jobs: tuple[str, ...] = section.read("jobs", lambda given: each(given, ValueReader.words), ())
    labels: dict[str, str] = section.read("labels", ValueReader.labels, {})
    if not jobs and not labels:
        section.given.refuse("say which jobs are meant: by their names in jobs, by labels, or both.")
        return None
    return Neighbour(jobs=jobs, labels=labels)


def _expression(given: ValueReader) -> Expression | None:
    section = given.section(("key", "operator", "values"))
    return _condition(section) if section else None


def _preference(given: ValueReader) -> Preference | None:
    section = given.section(("weight", "key", "operator", "values"))
    condition = _condition(section) if section else None
    if section is None or condition is None:
        return None
    weight = section.require("weight", lambda given: given.integer(1, MOST_WEIGHT), "say what it is worth")
    if weight is None:
        return None
    return Preference(weight=weight, key=condition.key, operator=condition.operator, values=condition.values)


def _condition(section: SectionReader) -> Expression | None:
    key = section.require("key", lambda given: given.matching(LABEL_KEY, _LABEL_EXPECTED), "name a label")
    operator = section.require(
        "operator", lambda given: given.choice(Operator), f"use one of {', '.join(Operator)}"
    )
    values: tuple[str, ...] = section.read("values", lambda given: each(given, ValueReader.words), ())
    if key is None or operator is None:
        return None
    problem = _values_problem(operator, values)
    if problem is not None:
        section.given.refuse(problem)
        return None
    return Expression(key=key, operator=operator, values=values)


def _values_problem(operator: Operator, values: tuple[str, ...]) -> str | None:
    if operator in (Operator.EXISTS, Operator.DOES_NOT_EXIST):
        return f"{operator} compares with nothing: remove values." if values else None
    if operator in (Operator.IN, Operator.NOT_IN):
        return None if values else f"{operator} needs at least one of values."
    if len(values) != 1 or not _WHOLE.fullmatch(values[0]):
        return f"{operator} needs one whole number in values."
    return None


def _toleration(given: ValueReader) -> Toleration | None:
    section = given.section(("key", "operator", "value", "effect"))
    if section is None:
        return None
    toleration = Toleration(
        key=section.read("key", lambda given: given.matching(LABEL_KEY, "the name of a taint"), None),
        operator=section.read(
            "operator", lambda given: given.choice(TolerationOperator), TolerationOperator.EQUAL
        ),
        value=section.read("value", ValueReader.words, ""),
        effect=section.read("effect", lambda given: given.choice(Effect), None),
    )
    if toleration.operator is TolerationOperator.EXISTS and toleration.value:
        given.refuse("Exists compares with nothing: remove value.")
    if toleration.operator is TolerationOperator.EQUAL and section.get("key") is None:
        given.refuse("Equal needs a key: name one, or use the operator Exists.")
    return toleration


def _resources(given: ValueReader) -> Resources | None:
    section = given.section(("cpu", "memory", "gpu"))
    if section is None:
        return None
    return Resources(
        cpu=section.read("cpu", lambda given: given.number(0, MOST_CPU), 0.0),
        memory=section.read("memory", _size, 0),
        gpu=section.read("gpu", lambda given: given.integer(0, MOST_GPU), 0),
    )


def _size(given: ValueReader) -> int | None:
    text = given.words()
    if text is None:
        return None
    try:
        return parse_size(text)
    except Invalid as error:
        given.refuse(error.message)
        return None
