"""The `flow` of a job: what is accepted, what it becomes, and every fault with its place."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from hetuflow_core.errors import Invalid
from hetuflow_core.flow import ItemShare, OnFailure, TriggerRule
from hetuflow_core.jobfile import FlowSpec, JobSpec, canonical, load_documents, parse_documents, raw_document

FLOW = """
kind: job
name: etl
timeout: 2h
params: {day: monday}
flow:
  nodes:
    - {name: extract, run: {command: [./extract.sh, "{{ params.day }}"]}, on_failure: retry}
    - {name: clean, needs: [extract], job: clean-one, map: "{{ nodes.extract.output.files }}"}
    - name: patch
      needs: [extract]
      run: {script: uname}
      placement: {labels: {role: web}}
      fleet: {waves: [1, 25%, 100%], max_unavailable: 10%, quorum: 9}
      on_failure: continue
    - {name: approve, needs: [clean], approval: {approvers: ["role:admin", eve], timeout: 1d}}
    - {name: later, needs: [approve], wait_until: 10m}
    - name: load
      needs: [later, patch]
      trigger: all_done
      flow: loading
      params: {files: "{{ nodes.extract.output.files | default([]) }}", on: "{{ nodes.patch.succeeded }}"}
"""


def read(text: str) -> JobSpec:
    (spec,) = load_documents(parse_documents(text, None, "f.yaml"))
    assert isinstance(spec, JobSpec)
    return spec


def flow(text: str) -> FlowSpec:
    spec = read(text).flow
    assert spec is not None
    return spec


def faults(*nodes: str, head: str = "") -> list[str]:
    """The faults of a flow with these nodes, one on each line from the fifth on."""
    lines = "".join(f"    - {node}\n" for node in nodes)
    with pytest.raises(Invalid) as raised:
        read(f"kind: job\nname: f\n{head or 'labels: {}'}\nflow:\n  nodes:\n{lines}")
    # Without what they all begin with.
    return [str(fault).replace("f.yaml:", "").replace("flow.nodes", "") for fault in raised.value.faults]


def test_a_flow_is_read_as_it_is_written() -> None:
    spec = flow(FLOW)
    assert [node.name for node in spec.nodes] == ["extract", "clean", "patch", "approve", "later", "load"]
    extract, patch, approve = spec.node("extract"), spec.node("patch"), spec.node("approve")
    assert extract.work is not None
    assert extract.work.retry.max_attempts == 3  # `on_failure: retry` alone
    assert patch.fleet is not None
    assert patch.fleet.waves == (ItemShare(count=1), ItemShare(percent=25), ItemShare(percent=100))
    assert (patch.fleet.max_unavailable, patch.fleet.quorum) == (ItemShare(percent=10), ItemShare(count=9))
    assert approve.approval is not None
    assert approve.approval.approvers == ("eve", "role:admin")
    assert approve.approval.timeout == timedelta(days=1)
    assert spec.node("load").trigger is TriggerRule.ALL_DONE
    assert spec.on_failure is OnFailure.ABORT
    graph = spec.graph()
    assert not graph.nodes["patch"].aborts
    assert graph.nodes["extract"].aborts
    assert graph.ancestors("load") == {"extract", "clean", "patch", "approve", "later"}


def test_a_flow_reads_back_as_it_was() -> None:
    spec = read(FLOW)
    document = json.loads(canonical(spec))
    assert load_documents([raw_document(document, "")]) == [spec]
    # A flow as a whole runs nowhere.
    assert not {"run", "lease", "retry", "placement"} & document.keys()


def test_every_fault_is_named_with_its_place() -> None:
    assert faults(
        '{name: a, needs: [c], run: {command: ["{{ nodes.b.output.x"]}}',
        "{name: b, needs: [a, b, exstract], job: x, timeout: 3s}",
        "{name: c, needs: [b], approval: {timeout: 1d, approver: [x]}}",
        "{name: extract, run: {command: [x]}, map: 3}",
        "{name: extract, run: {command: [x]}, fleet: {waves: [0%, 3]}, job: x}",
        head="retry: {max_attempts: 3}",
    ) == [
        "3:1 retry: a flow's nodes have their own retry: move it into them.",
        "6:17 [0].needs: the nodes wait for each other: a → b → c → a. Remove one.",
        (
            '6:45 [0].run.command[0]: the template "{{ nodes.b.output.x" is wrong: '
            "unexpected end of template, expected 'end of print statement'; correct it, or write "
            "{{ '{{' }} for two literal braces."
        ),
        '7:17 [1].needs: "b" needs itself: remove it.',
        '7:17 [1].needs: the node "exstract" does not exist: did you mean "extract"?',
        ("7:50 [1].timeout: says nothing for a node with job: use deadline, or give the job a timeout."),
        '8:53 [2].approval.approver: "approver" is not a known key: did you mean "approvers"?',
        "9:44 [3].map: must be a list, or an expression that gives one.",
        "10:7 [4]: run and job exclude each other: keep one of them.",
        '10:8 [4].name: the node "extract" is written twice: rename one of them.',
        "10:60 [4].fleet.waves[0]: must be between 1% and 100%, not 0%.",
    ]


def test_references_are_upstream_and_there() -> None:
    assert faults(
        '{name: a, run: {command: ["{{ nodes.b.output.x }}", "{{ item }}", "{{ nodes }}"]}}',
        '{name: b, needs: [a], job: x, when: "nodes.c.output.x > 3"}',
        '{name: c, needs: [b], trigger: all_done, run: {command: ["{{ nodes.b.output.x }}"]}}',
        '{name: d, needs: [b], trigger: all_done, run: {command: ["{{ nodes.b.output.x | default(3) }}"]}}',
        '{name: e, needs: [c], run: {command: ["{{ nodes.c.output.x }}", "{{ nodes.b.outptu }}"]}}',
    ) == [
        '6:33 [0].run.command[0]: "b" is not upstream of "a": add it to needs.',
        "6:59 [0].run.command[1]: only a node with map or fleet has item: add one, or use params.",
        "6:73 [0].run.command[2]: say which node: write nodes.NAME, such as nodes.load.output.",
        '7:37 [1].when: "c" is not upstream of "b": add it to needs.',
        (
            '8:64 [2].run.command[0]: "b" may have been skipped or have failed, and has no output '
            "then: use default(…) or has(…), or the trigger all_succeeded."
        ),
        (
            '10:71 [4].run.command[1]: a node has no "outptu": it has status, output, total, '
            "succeeded, failed, skipped."
        ),
    ]


@pytest.mark.parametrize(
    ("node", "message"),
    [
        (
            "{name: a}",
            "nothing says what the node does: use run, job, flow, approval, wait_for_event or wait_until.",
        ),
        ("{name: a.b, job: x}", "is not allowed here"),
        ("{name: a, wait_until: soon}", "soon"),
        ('{name: a, job: x, when: "1 > "}', "when: line 1, column 5"),
        ('{name: a, job: x, when: "nodez.b.failed > 1"}', 'did you mean "nodes"?'),
        ("{name: a, wait_for_event: {name: x, filter: payload.}}", "filter: line 1"),
        ("{name: a, approval: {}, priority: 3}", "says nothing for a node with approval: remove it."),
        ("{name: a, job: x, on_failure: retry}", "give the job itself a retry"),
        ("{name: a, job: x, map: [1], fleet: {}}", "map and fleet exclude each other"),
        (
            "{name: a, run: {command: [x]}, on_failure: retry, retry: {max_attempts: 1}}",
            "needs max_attempts of 2",
        ),
    ],
)
def test_a_node_that_makes_no_sense_is_refused(node: str, message: str) -> None:
    assert message in " ".join(faults(node))
