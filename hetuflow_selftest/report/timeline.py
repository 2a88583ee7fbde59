"""The picture: who lived when, what was done to whom, what ran where, and what went wrong."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from itertools import accumulate, pairwise

from hetuflow_selftest.oracle.evidence import Histories, Run
from hetuflow_selftest.oracle.verdict import Anomaly, Outcome, Verdict

# Faults may be there at once: their names stand below each other.
_FAULT_LANES = ("faults", " ", "  ")
_LEFT, _RIGHT, _TOP, _LANE = 110, 1180, 40, 26
_NAME_WIDTH = 50
# How late fires started, upwards by powers of ten between these seconds.
_FIRES, _FIRES_HEIGHT = "fires", 90
_SOONEST, _LATEST = 0.01, 100.0
_MARKED = {0.1: "0.1 s", 1.0: "1 s", 10.0: "10 s"}
_STEPS = (1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600)
_MOST_STEPS = 14
_STYLE = """
text { font: 12px system-ui, sans-serif; fill: #334 } .axis { stroke: #ccd; stroke-width: 1 }
.fault { fill: #e5484d; opacity: .16 } .mark { fill: #e5484d; opacity: .75 } .fire { fill: #30a46c }
.late { fill: #f5a524 } .run { fill: #3e63dd; opacity: .45 } .cut { fill: #d6409f; opacity: .6 }
.small { font-size: 9px; text-anchor: end; fill: #889 }
.term { fill: #8e4ec6; opacity: .55 } .wrong { stroke: #c00; stroke-width: 2; fill: none }
"""


@dataclass(frozen=True, slots=True)
class Scale:
    begin: float
    end: float

    def x(self, at: float) -> float:
        share = (min(max(at, self.begin), self.end) - self.begin) / max(self.end - self.begin, 1e-9)
        return round(_LEFT + share * (_RIGHT - _LEFT), 1)

    def width(self, began: float, ended: float) -> float:
        return max(1.5, round(self.x(ended) - self.x(began), 1))


def timeline(histories: Histories, verdicts: list[Verdict]) -> str:
    """Return an SVG."""
    scale = _scale(histories)
    lanes = _lanes(histories)
    tops = accumulate((_height(name) for name in lanes), initial=_TOP)
    rows = dict(zip(lanes, tops, strict=False))
    height = _TOP + sum(map(_height, lanes)) + 40
    parts = [
        *_axis(scale, rows, height),
        *_faults(histories, scale, rows, height),
        *_terms(histories, scale, rows),
        *_runs(histories, scale, rows),
        *_fires(histories, scale, rows),
        *_anomalies(verdicts, scale, rows),
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1200 {height}" role="img">'
        f"<style>{_STYLE}</style>{''.join(parts)}</svg>"
    )


def _scale(histories: Histories) -> Scale:
    times = [run.started for run in histories.runs] + [run.seen for run in histories.runs]
    times += [window.began for window in histories.windows]
    return Scale(min(times, default=0.0) - 1, max(times, default=1.0) + 1)


def _lanes(histories: Histories) -> list[str]:
    servers = [f"server-{n}" for n in range(1, int(histories.facts.get("servers", 0)) + 1)]
    agents = [f"agent-{n}" for n in range(1, int(histories.facts.get("agents", 0)) + 1)]
    return [*_FAULT_LANES, "leader", _FIRES, *servers, "postgres", *agents, "other"]


def _height(lane: str) -> int:
    return _FIRES_HEIGHT if lane == _FIRES else _LANE


def _axis(scale: Scale, rows: dict[str, int], height: int) -> Iterator[str]:
    for name, y in rows.items():
        below = y + _height(name) - 2
        yield f'<text x="8" y="{y + 16}">{escape(name)}</text>'
        yield f'<line class="axis" x1="{_LEFT}" x2="{_RIGHT}" y1="{below}" y2="{below}"/>'
    for late, said in _MARKED.items():
        level = rows[_FIRES] + _up(late)
        yield f'<text class="small" x="{_LEFT - 4}" y="{level + 3}">{said}</text>'
        yield f'<line class="axis" x1="{_LEFT}" x2="{_RIGHT}" y1="{level}" y2="{level}"/>'
    seconds = int(scale.end - scale.begin)
    step = next((step for step in _STEPS if seconds / step <= _MOST_STEPS), _STEPS[-1])
    for second in range(0, seconds + 1, step):
        x = scale.x(scale.begin + second)
        yield f'<line class="axis" x1="{x}" x2="{x}" y1="{_TOP - 6}" y2="{height - 30}"/>'
        yield f'<text x="{x - 8}" y="{height - 12}">{second} s</text>'


def _faults(histories: Histories, scale: Scale, rows: dict[str, int], height: int) -> Iterator[str]:
    windows = sorted(histories.windows, key=lambda window: window.began)
    for number, window in enumerate(windows):
        x, width = scale.x(window.began), scale.width(window.began, window.ended)
        title = f"{window.fault}: {window.victim}"
        yield _box("fault", x, _TOP - 6, width, height - _TOP - 24, title)
        y = rows[_FAULT_LANES[number % len(_FAULT_LANES)]] + 14
        yield f'<text x="{x + 2}" y="{y}">{escape(window.fault)}</text>'
        for victim in window.victim.split(", "):
            yield _box("mark", x, rows.get(victim, rows["other"]) + 4, width, _LANE - 12, title)


def _terms(histories: Histories, scale: Scale, rows: dict[str, int]) -> Iterator[str]:
    offset = histories.wall_minus_boottime
    terms = sorted(histories.rows("leader_term"), key=lambda row: row["epoch"])
    urls = histories.facts.get("server_urls", [])
    home = {row["id"]: _server(urls, row["url"]) for row in histories.rows("server")}
    begun = [(row["committed_at"] - offset, row) for row in terms]
    for (began, row), (ended, _) in pairwise([*begun, (scale.end, {})]):
        if ended >= scale.begin:
            leader, width = home.get(row["holder"], row["holder"]), scale.width(began, ended)
            said = f"term {row['epoch']}: {leader}"
            yield _box("term", scale.x(began), rows["leader"] + 5, width - 1, _LANE - 12, said)
            if width > _NAME_WIDTH:
                yield f'<text x="{scale.x(began) + 3}" y="{rows["leader"] + 16}">{escape(leader)}</text>'


def _server(urls: list[str], url: str) -> str:
    return f"server-{urls.index(url) + 1}" if url in urls else url


def _runs(histories: Histories, scale: Scale, rows: dict[str, int]) -> Iterator[str]:
    for run in histories.runs:
        y = rows.get(histories.agents.get(run.instance) or "other", rows["other"])
        kind = "cut" if run.ended is None else "run"
        width = scale.width(run.started, run.seen)
        yield _box(kind, scale.x(run.started), y + 6, width, _LANE - 14, _named(run))


def _box(kind: str, x: float, y: float, width: float, height: float, title: str) -> str:
    return (
        f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}">'
        f"<title>{escape(title)}</title></rect>"
    )


def _named(run: Run) -> str:
    return f"{run.instance}, process {run.pid}, {run.seen - run.started:.2f} s"


def _fires(histories: Histories, scale: Scale, rows: dict[str, int]) -> Iterator[str]:
    offset = histories.wall_minus_boottime
    for task in histories.tasks.values():
        runs = histories.runs_of_task.get(task["id"])
        if task["schedule_id"] and runs:
            delay = runs[0].started - (task["fire_at"] - offset)
            kind = "fire" if delay < 1 else "late"
            said = escape(f"{task['job']}, {delay:+.2f} s")
            x, y = scale.x(runs[0].started), rows[_FIRES] + _up(delay)
            yield f'<circle class="{kind}" cx="{x}" cy="{y}" r="2"><title>{said}</title></circle>'


def _up(delay: float) -> float:
    """Where in its lane a fire stands that started so late."""
    bounded = min(max(delay, _SOONEST), _LATEST)
    share = math.log(bounded / _SOONEST) / math.log(_LATEST / _SOONEST)
    return round(_FIRES_HEIGHT - 8 - share * (_FIRES_HEIGHT - 16), 1)


def _anomalies(verdicts: list[Verdict], scale: Scale, rows: dict[str, int]) -> Iterator[str]:
    for verdict in verdicts:
        if verdict.outcome is Outcome.FAIL:
            yield from (
                _cross(anomaly, scale, rows) for anomaly in verdict.anomalies if anomaly.at is not None
            )


def _cross(anomaly: Anomaly, scale: Scale, rows: dict[str, int]) -> str:
    x, y = scale.x(anomaly.at or 0.0), rows.get(anomaly.lane or "other", rows["other"]) + 12
    cross = f"M{x - 5} {y - 5}l10 10m0 -10l-10 10"
    return f'<path class="wrong" d="{cross}"><title>{escape(anomaly.what)}</title></path>'
