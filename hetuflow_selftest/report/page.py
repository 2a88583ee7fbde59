"""The report as one page that needs nothing else."""

from __future__ import annotations

from html import escape

from hetuflow_selftest.oracle.verdict import Outcome, Verdict
from hetuflow_selftest.report.text import repeat_command
from hetuflow_selftest.report.timeline import timeline
from hetuflow_selftest.run import Judgement
from hetuflow_selftest.settings import RunSettings

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1220px; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; width: 100% }
td, th { text-align: left; padding: .3rem .6rem; vertical-align: top }
tr { border-bottom: 1px solid #e4e4ee } code { background: #f3f3f8; padding: .1rem .3rem }
.pass { color: #18794e } .fail { color: #c00; font-weight: 600 } .unknown { color: #a66a00 }
li { font-family: ui-monospace, monospace; font-size: 13px }
.key span { margin-right: 1.5rem; white-space: nowrap }
.key i { display: inline-block; width: 1.6em; height: .7em; margin-right: .4em; border-radius: 2px }
"""


_KEY = "".join(
    f'<span><i style="background: {colour}"></i>{what}</span>'
    for colour, what in (
        ("#e5484d", "a fault, and whom it hit"),
        ("#8e4ec6", "who led"),
        ("#30a46c", "fires as they started, the later the higher"),
        ("#f5a524", "a second late or more"),
        ("#3e63dd", "processes of tasks"),
        ("#d6409f", "those that were ended"),
        ("#c00", "crosses: what was wrong"),
    )
)
# What asks for attention comes first.
_FIRST = (Outcome.FAIL, Outcome.UNKNOWN, Outcome.PASS)


def as_page(settings: RunSettings, found: Judgement) -> str:
    ordered = sorted(found.verdicts, key=lambda verdict: _FIRST.index(verdict.outcome))
    rows = "".join(map(_row, ordered))
    outcome = found.outcome.value
    return f"""<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>Self-test: {outcome}</title><style>{_STYLE}</style></head>
<body>
<h1>Self-test: <span class="{outcome}">{outcome}</span></h1>
<p>{escape(_scene(found))}<br>The same again: <code>{escape(repeat_command(settings))}</code></p>
{timeline(found.histories, found.verdicts)}
<p class="key">{_KEY}</p>
<table><tr><th></th><th>verdict</th><th>what was seen</th></tr>{rows}</table>
</body></html>
"""


def _scene(found: Judgement) -> str:
    facts = found.histories.facts
    return (
        f"{facts.get('servers')} servers, {facts.get('agents')} agents and PostgreSQL, kept apart by "
        f"{facts.get('network')}; {len(found.histories.tasks)} tasks, {len(found.histories.windows)} faults."
    )


def _row(verdict: Verdict) -> str:
    wrong = "".join(f"<li>{escape(anomaly.what)}</li>" for anomaly in verdict.examples)
    listed = f"<ul>{wrong}</ul>" if wrong else ""
    outcome = verdict.outcome.value
    return (
        f'<tr><td class="{outcome}">{outcome}</td><td>{escape(verdict.name)}</td>'
        f"<td>{escape(verdict.summary)}{listed}</td></tr>"
    )
