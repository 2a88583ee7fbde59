"""One finish counts per attempt; what was acknowledged stays; whoever comes too late is told so."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from hetuflow_selftest.oracle.evidence import Histories
from hetuflow_selftest.oracle.verdict import Anomaly, Verdict, judged


@dataclass(frozen=True, slots=True)
class Finish:
    """A report of an end as the proxy has seen it, with the server's answer."""

    instance: str
    token: str
    status: str
    outcome: str
    at: float
    link: str


def finishes(histories: Histories) -> list[Finish]:
    return [
        Finish(
            one["instance"], one["token"], one["status"], one["outcome"], record["answered"], record["link"]
        )
        for record in histories.proxy
        if record["kind"] == "exchange" and record["call"] == "reports"
        for one in record.get("reports", ())
        if one["type"] == "finish" and one["outcome"] is not None
    ]


def finished_once(histories: Histories) -> list[Verdict]:
    reported = finishes(histories)
    accepted = [finish for finish in reported if finish.outcome == "ok"]
    late = [finish for finish in reported if finish.outcome != "ok"]
    succeeded: dict[str, int] = defaultdict(int)
    for row in histories.rows("instance"):
        succeeded[row["task_id"]] += row["status"] == "succeeded"
    twice = [Anomaly(f"task {task} succeeded {n} times") for task, n in succeeded.items() if n > 1]
    return [
        judged("one finish per attempt", len(accepted), "finishes", [*_rivals(accepted), *twice]),
        judged("acknowledged finishes are final", len(accepted), "finishes", _changed(histories, accepted)),
        judged("late finishers are refused", len(reported), "reports", _wrongly_refused(histories, late)),
    ]


def _rivals(accepted: list[Finish]) -> Iterator[Anomaly]:
    tokens: dict[str, set[str]] = defaultdict(set)
    for finish in accepted:
        tokens[finish.instance].add(finish.token)
        if len(tokens[finish.instance]) > 1:
            said = f"instance {finish.instance} was finished by {len(tokens[finish.instance])} claims"
            yield Anomaly(said, finish.at, finish.link)


def _changed(histories: Histories, accepted: list[Finish]) -> Iterator[Anomaly]:
    stored = {row["id"]: row for row in histories.rows("instance")}
    for finish in accepted:
        row = stored.get(finish.instance)
        if row is None:
            yield Anomaly(
                f"the end of {finish.instance} was acknowledged and is not there", finish.at, finish.link
            )
        elif (row["status"], row["token"]) != (finish.status, finish.token):
            said = f"{finish.instance} was acknowledged as {finish.status} and is {row['status']}"
            yield Anomaly(said, finish.at, finish.link)


def _wrongly_refused(histories: Histories, late: list[Finish]) -> Iterator[Anomaly]:
    """The holder of the token that counts is never refused; what was refused is kept apart."""
    stored = {row["id"]: row["token"] for row in histories.rows("instance") if row["status"] != "lost"}
    kept = {(row["instance_id"], row["token"]) for row in histories.rows("late_report")}
    for finish in late:
        if stored.get(finish.instance) == finish.token:
            yield Anomaly(f"the finisher of {finish.instance} was refused", finish.at, finish.link)
        elif (finish.instance, finish.token) not in kept:
            yield Anomaly(f"a late result of {finish.instance} was not kept", finish.at, finish.link)
