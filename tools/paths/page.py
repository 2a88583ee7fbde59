"""The page docs/design/paths.md: counts before and now, and the files of each path in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from tools.paths.trace import PROGRAMS, PathFile

# Path → program → files.
Measured: TypeAlias = Mapping[str, Mapping[str, Sequence[PathFile]]]


@dataclass(frozen=True)
class MeasuredPath:
    title: str
    span: str
    # Programs that are part of the path.
    programs: tuple[str, ...]
    # Files by program in the layout by technical layer, which this layout replaced; measured by this program.
    before: tuple[int, ...]
    # Background loops of the server that are part of the path.
    loops: tuple[str, ...] = ()


PATHS: Final[Mapping[str, MeasuredPath]] = {
    "run": MeasuredPath(
        "Run to result",
        "From `POST /jobs/{id}/run` of a job whose command does nothing until its result is in the database.",
        PROGRAMS,
        (73, 45, 13),
    ),
    "generation": MeasuredPath(
        "Schedule to fire",
        "From the tick of the generator that finds a schedule due within a minute until the task of the fire "
        "is in the database.",
        ("server",),
        (35,),
        loops=("generator",),
    ),
    "fire": MeasuredPath(
        "Fire to process",
        "From the moment agents may claim a fire, two seconds before it is due, until its process starts.",
        PROGRAMS,
        (52, 41, 11),
    ),
    "node": MeasuredPath(
        "Node to next node",
        "From the end of the process of a flow node until the task of the next node is in the database.",
        PROGRAMS,
        (65, 36, 11),
    ),
    "heartbeat": MeasuredPath(
        "Heartbeat",
        "From the agent's decision to send a heartbeat until it has processed the response.",
        ("server", "agent"),
        (26, 19),
    ),
}

_HEAD: Final = """# Paths through the code

<!-- Written by `make paths` (tools/paths). Do not edit. -->

This page lists which files the main paths execute, in the order in which each file is first entered. Use it
to find where to start reading, and to see whether a change makes a path longer.

`make paths` measures the paths on a real system: embedded PostgreSQL, a server, an agent and its keeper. A
profile hook records the calls in every process. A file counts if it was executed in nine of ten repetitions
(there are {repetitions}). Background loops that are not part of the path and code that runs at import do not
count; caches are warm. Next to each file is the function that was called first.

| path | program | files before | files now |
|---|---|---|---|"""


_NOTE: Final = """
*Before* is the layout by technical layer (`services/`, `store/`, `api/`, …) that this layout replaced,
measured in the same way. Single repetitions, which include a few background files, gave 75 + 43 for *run to
result* (server + agent), 53 + 43 for *fire to process*, 113 for *node to next node* (all programs) and 29
for the server's part of a *heartbeat*.
"""


def page(measured: Measured, repetitions: int) -> str:
    rows = [
        f"| {path.title} | {program} | {before} | {len(measured[key][program])} |"
        for key, path in PATHS.items()
        for program, before in zip(path.programs, path.before, strict=True)
    ]
    sections = [line for key in PATHS for line in _section(PATHS[key], measured[key])]
    return "\n".join([_HEAD.format(repetitions=repetitions), *rows, _NOTE, *sections])


def _section(path: MeasuredPath, measured: Mapping[str, Sequence[PathFile]]) -> list[str]:
    lines = [f"## {path.title}", "", path.span, ""]
    for program in path.programs:
        lines += [f"### {path.title}: {program}", ""]
        lines += [f"{number}. {_item(file)}" for number, file in enumerate(measured[program], 1)]
        lines += [""]
    return lines


def _item(file: PathFile) -> str:
    return f"`{file.name}` `{file.function.replace('.<locals>', '')}`"
