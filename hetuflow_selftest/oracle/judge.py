"""All verdicts about one run."""

from __future__ import annotations

from hetuflow_selftest.oracle.effects import effects
from hetuflow_selftest.oracle.ending import everything_ended
from hetuflow_selftest.oracle.evidence import Histories
from hetuflow_selftest.oracle.finishes import finished_once
from hetuflow_selftest.oracle.fires import each_fire_once, each_fire_ran
from hetuflow_selftest.oracle.latency import start_latency
from hetuflow_selftest.oracle.leadership import leadership
from hetuflow_selftest.oracle.logs import logs_are_whole
from hetuflow_selftest.oracle.losses import losses_are_true
from hetuflow_selftest.oracle.processes import never_at_once
from hetuflow_selftest.oracle.requests import promises
from hetuflow_selftest.oracle.states import ends_are_final
from hetuflow_selftest.oracle.verdict import Verdict


def judge(histories: Histories) -> list[Verdict]:
    return [
        *each_fire_once(histories),
        each_fire_ran(histories),
        *start_latency(histories),
        *finished_once(histories),
        ends_are_final(histories),
        losses_are_true(histories),
        *leadership(histories),
        *never_at_once(histories),
        logs_are_whole(histories),
        *promises(histories),
        *everything_ended(histories),
        *effects(histories),
    ]
