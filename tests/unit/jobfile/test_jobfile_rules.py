"""What a job or namespace may say, and what is told to whoever says something else."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from hetuflow_core.errors import Invalid
from hetuflow_core.jobfile import (
    Concurrency,
    Document,
    Executor,
    JobSpec,
    NamespaceSpec,
    OnLost,
    Run,
    from_document,
    load_documents,
    parse_documents,
    raw_documents,
    to_document,
)
from hetuflow_core.placement import (
    AntiAffinity,
    Neighbour,
    Operator,
    Requirements,
    Resources,
    UnlikedNeighbour,
)
from hetuflow_core.retry import Backoff, RetryPolicy
from hetuflow_core.states import InstanceStatus

RUN = {"command": ["true"]}


def job(**keys: Any) -> dict[str, Any]:
    return {"kind": "job", "name": "a", "run": RUN, **keys}


def faults_of(document: Any, **options: Any) -> dict[str, str]:
    with pytest.raises(Invalid) as raised:
        load_documents(raw_documents([document], path=""), **options)
    assert raised.value.code == "job.invalid"
    return {fault.field.removeprefix("[0]").removeprefix("."): fault.message for fault in raised.value.faults}


def loaded(text: str) -> list[Document]:
    return load_documents(parse_documents(text, "yaml", "jobs.yaml"))


def test_the_smallest_job_has_the_documented_defaults() -> None:
    (spec,) = loaded("kind: job\nname: hello\nrun: {command: [echo, hello]}")
    assert spec == JobSpec(
        namespace="default",
        name="hello",
        labels={},
        run=Run(command=("echo", "hello"), script=None, shell=None, env={}, workdir=None),
        params={},
        priority=500,
        timeout=None,
        deadline=None,
        retry=RetryPolicy(
            max_attempts=1,
            backoff=Backoff.EXPONENTIAL,
            delay=timedelta(seconds=10),
            max_delay=timedelta(minutes=5),
            jitter=True,
            on=frozenset({InstanceStatus.FAILED, InstanceStatus.TIMED_OUT, InstanceStatus.LOST}),
        ),
        concurrency=Concurrency(),
        limits=(),
        placement=Requirements(),
        kill_grace=timedelta(seconds=30),
        on_lost=OnLost.KILL,
        lease=None,
        skip_exit_codes=(),
    )


def test_a_job_that_sets_everything() -> None:
    (spec,) = loaded(
        """
kind: job
namespace: team.a
name: nightly-report
labels: {team: data, version: 1.10}
run:
  script: |
    echo "${#WHO}" {{ not a template }}
  shell: sh
  env: {WHO: "{{ params.who }}", VERSION: 1.10, ZIP: 01234, EMPTY: ""}
  workdir: /srv/report
params: {who: world, nested: {list: [1, null, true]}}
priority: 0
timeout: 10m
retry: {max_attempts: 3, backoff: linear, delay: 500ms, max_delay: 1h30m, jitter: false, on: [lost, failed]}
kill_grace: 0s
on_lost: continue
lease: 4s
skip_exit_codes: [75, 3, 75]
schedules: []
placement: {labels: {}, affinity: {required: []}, pool: null}
flow: null
"""
    )
    assert spec == JobSpec(
        namespace="team.a",
        name="nightly-report",
        labels={"team": "data", "version": "1.10"},
        run=Run(
            script='echo "${#WHO}" {{ not a template }}\n',
            shell="sh",
            env={"WHO": "{{ params.who }}", "VERSION": "1.10", "ZIP": "01234", "EMPTY": ""},
            workdir="/srv/report",
        ),
        params={"who": "world", "nested": {"list": [1, None, True]}},
        priority=0,
        timeout=timedelta(minutes=10),
        retry=RetryPolicy(
            max_attempts=3,
            backoff=Backoff.LINEAR,
            delay=timedelta(milliseconds=500),
            max_delay=timedelta(minutes=90),
            jitter=False,
            on=frozenset({InstanceStatus.FAILED, InstanceStatus.LOST}),
        ),
        kill_grace=timedelta(0),
        on_lost=OnLost.CONTINUE,
        lease=timedelta(seconds=4),
        skip_exit_codes=(3, 75),
    )
    assert isinstance(spec, JobSpec)
    assert spec.run.executor is Executor.SCRIPT


def test_numbers_in_a_command_are_arguments_as_written() -> None:
    spec = from_document(job(run={"command": ["sleep", 5, 0.5]}))
    assert spec.run.command == ("sleep", "5", "0.5")
    (written,) = load_documents(
        parse_documents('{"kind":"job","name":"a","run":{"command":["x",1.10,1e3]}}', "json", "")
    )
    assert isinstance(written, JobSpec)
    assert written.run.command == ("x", "1.10", "1e3")


def test_a_script_runs_in_bash_unless_it_says_otherwise() -> None:
    assert from_document(job(run={"script": "true"})).run.shell == "bash"


def test_a_long_delay_lifts_the_cap_nobody_set() -> None:
    assert from_document(job(retry={"delay": "10m"})).retry.max_delay == timedelta(minutes=10)
    assert faults_of(job(retry={"delay": "10m", "max_delay": "5m"})) == {
        "retry.max_delay": "is less than the delay of 10m: raise it, or lower the delay."
    }


@pytest.mark.parametrize(
    ("keys", "field", "message"),
    [
        ({"name": None}, "", '"name" is missing: name the job.'),
        ({"name": "Upper"}, "name", '"Upper" is not allowed here: use lower-case letters'),
        ({"name": "-a"}, "name", "is not allowed here"),
        ({"name": "a" * 129}, "name", "is not allowed here"),
        ({"name": "a\n"}, "name", "is not allowed here"),
        ({"namespace": "a b"}, "namespace", "is not allowed here"),
        ({"timeot": "10m"}, "timeot", '"timeot" is not a known key: did you mean "timeout"?'),
        ({"zzz": 1}, "zzz", '"zzz" is not a known key: use kind, namespace, name,'),
        ({"labels": ["a"]}, "labels", "must be a mapping, not a list."),
        ({"labels": {"a b": "c"}}, 'labels["a b"]', "a label's name has"),
        ({"labels": {"a": True}}, "labels.a", "must be text, not true: put it in quotes."),
        ({"labels": {"a": "x" * 257}}, "labels.a", "at most 256 characters"),
        ({"params": [1]}, "params", "must be a mapping, not a list."),
        ({"priority": 1001}, "priority", "must be between 0 and 1000, not 1001."),
        ({"priority": -1}, "priority", "must be between 0 and 1000, not -1."),
        ({"priority": True}, "priority", "must be a whole number, not true."),
        ({"priority": 5.0}, "priority", "must be a whole number, not the number 5.0."),
        ({"priority": "5"}, "priority", 'must be a whole number, not the text "5".'),
        ({"timeout": 30}, "timeout", 'the duration "30" has no unit: write 30s for seconds.'),
        ({"timeout": "soon"}, "timeout", '"soon" is not a duration'),
        ({"timeout": "0s"}, "timeout", "must be between 1ms and"),
        ({"timeout": "1.0005s"}, "timeout", "must be a whole number of milliseconds: round it."),
        ({"timeout": ["1s"]}, "timeout", "must be text, not a list."),
        ({"kill_grace": "2d"}, "kill_grace", "must be between 0s and 1d, not 2d."),
        ({"lease": "3.999s"}, "lease", "must be between 4s and 7d, not 3.999s."),
        ({"on_lost": "kil"}, "on_lost", '"kil" is not a known value: did you mean "kill"?'),
        ({"on_lost": "zzz"}, "on_lost", '"zzz" is not a known value: use kill or continue.'),
        ({"skip_exit_codes": [0]}, "skip_exit_codes[0]", "must be between 1 and 255, not 0."),
        ({"skip_exit_codes": [1, 256]}, "skip_exit_codes[1]", "must be between 1 and 255, not 256."),
        ({"skip_exit_codes": 1}, "skip_exit_codes", "must be a list, not the number 1."),
        ({"retry": 3}, "retry", "must be a mapping, not the number 3."),
        ({"retry": {"max_attempts": 0}}, "retry.max_attempts", "must be between 1 and 100, not 0."),
        ({"retry": {"max_attempts": 101}}, "retry.max_attempts", "must be between 1 and 100, not 101."),
        ({"retry": {"backoff": "none"}}, "retry.backoff", "use fixed, linear or exponential."),
        ({"retry": {"jitter": "yes"}}, "retry.jitter", 'must be true or false, not the text "yes".'),
        ({"retry": {"on": ["cancelled"]}}, "retry.on[0]", '"cancelled" is never retried: use failed,'),
        ({"retry": {"attempts": 3}}, "retry.attempts", 'did you mean "max_attempts"?'),
    ],
)
def test_rules_of_a_job(keys: dict[str, Any], field: str, message: str) -> None:
    faults = faults_of(job(**keys))
    assert list(faults) == [field]
    assert message in faults[field]


@pytest.mark.parametrize(
    ("run", "field", "message"),
    [
        (None, "", '"run" is missing: say what to run'),
        ({}, "run", "nothing says what to run: use command, script, python, http or executor."),
        ("echo a", "run", 'must be a mapping, not the text "echo a".'),
        (
            {"env": {"A": "b"}},
            "run",
            "nothing says what to run: use command, script, python, http or executor.",
        ),
        ({"command": ["a"], "script": "b"}, "run", "command and script exclude each other"),
        ({"command": "echo a"}, "run.command", "must be a list of arguments, such as [echo, hello]"),
        ({"command": [], "env": {"A": "b"}}, "run.command", "the list is empty: name the program to run."),
        ({"command": [""]}, "run.command", "the program's name is empty"),
        ({"command": ["a", ["b"]]}, "run.command[1]", "must be text, not a list."),
        ({"command": ["a", None]}, "run.command[1]", "must be text, not null: put it in quotes."),
        ({"command": ["a", "{{ params.x"]}, "run.command[1]", "the template"),
        ({"command": ["a", "{% if x %}"]}, "run.command[1]", "statements"),
        ({"command": ["a", "x" * 130_000]}, "run.command[1]", "longer than 120 KiB"),
        ({"command": ["a"], "shell": "sh"}, "run.shell", "only a script has a shell"),
        ({"script": " \n"}, "run.script", "the script is empty"),
        ({"script": 5}, "run.script", "must be text, not the number 5."),
        ({"script": "a", "shell": "sh -c"}, "run.shell", "use a shell such as bash or sh."),
        ({"command": ["a"], "user": "a b"}, "run.user", "name of a user"),
        (
            {"command": ["a"], "user": "u", "workdir": "/etc", "artifacts": {"outputs": ["shadow"]}},
            "run.artifacts",
            "fresh directory only",
        ),
        ({"command": ["a"], "workdir": "tmp"}, "run.workdir", "must be an absolute path"),
        ({"command": ["a"], "workdir": "/{{ params.x }}"}, "run.workdir", "is not a template"),
        ({"command": ["a"], "env": {"A": True}}, "run.env.A", "must be text, not true: put it in quotes."),
        ({"command": ["a"], "env": {"1A": "x"}}, "run.env.1A", "a variable's name has letters"),
        ({"command": ["a"], "env": {"A=B": "x"}}, 'run.env["A=B"]', "a variable's name has letters"),
        (
            {"command": ["a"], "env": {"HETUFLOW_TASK_ID": "x"}},
            "run.env.HETUFLOW_TASK_ID",
            "set by the agent",
        ),
        ({"command": ["a"], "env": {"A": "{{ parms.x }}"}}, "run.env.A", 'did you mean "params"?'),
        ({"comand": ["a"]}, "run.comand", '"comand" is not a known key: did you mean "command"?'),
        (
            {"docker": {}},
            "run.docker",
            "use command, script, python, http, executor, shell, with, env, secrets, workdir, user",
        ),
    ],
)
def test_rules_of_run(run: Any, field: str, message: str) -> None:
    faults = faults_of(job(run=run))
    assert list(faults) == [field]
    assert message in faults[field]


def _retry(when: dict[str, Any], then: dict[str, Any]) -> dict[str, Any]:
    return {"retry": {"max_attempts": 2, "rules": [{"when": when, "then": then}]}}


def test_what_is_not_enforced_is_refused() -> None:
    faults = faults_of(job(params_schema={"type": "object"}))
    assert list(faults) == ["params_schema"]
    assert "not supported by this version yet" in faults["params_schema"]


def test_a_condition_that_says_nothing_is_no_rule_for_every_end() -> None:
    faults = faults_of(job(**_retry({"oom": None}, {"retry": False})))
    assert faults == {
        "retry.rules[0].when": "is empty: use exit_code, signal, oom, timed_out, lost or output."
    }


def test_rules_and_a_deadline_are_accepted() -> None:
    keys = _retry({"exit_code": 75, "output": "rate limit"}, {"delay": "1m", "backoff": "linear"})
    (spec,) = load_documents(raw_documents([job(deadline="2h", **keys)]))
    assert isinstance(spec, JobSpec)
    assert spec.deadline == timedelta(hours=2)
    assert spec.retry.rules[0].then.delay == timedelta(minutes=1)
    assert from_document(to_document(spec)) == spec


@pytest.mark.parametrize("kind", ["alert"])
def test_kinds_to_come_are_refused(kind: str) -> None:
    faults = faults_of({"kind": kind, "name": "a", "value": "x"})
    assert faults == {
        "kind": f"documents of kind {kind} are not supported by this version yet: remove this one."
    }


def test_run_and_flow_exclude_each_other() -> None:
    faults = faults_of(job(flow={"nodes": [1]}))
    assert faults == {"": "run and flow exclude each other: keep one of them."}


@pytest.mark.parametrize(
    ("document", "field", "message"),
    [
        ({"name": "a"}, "", '"kind" is missing: write kind: job.'),
        ({"kind": "jobs"}, "kind", '"jobs" is not a kind of document: did you mean "job"?'),
        (
            {"kind": "zzz"},
            "kind",
            "is not a kind of document: use job, namespace, calendar, limit, secret or webhook.",
        ),
        ({"kind": 1}, "kind", "must be text, not the number 1."),
        ([], "", "must be a mapping, not a list."),
        ("x", "", 'must be a mapping, not the text "x".'),
        ({"kind": "namespace"}, "", '"name" is missing: name the namespace.'),
        ({"kind": "namespace", "name": "a", "weight": 0}, "weight", "must be between 1 and 10000, not 0."),
        ({"kind": "namespace", "name": "a", "weigth": 1}, "weigth", 'did you mean "weight"?'),
        ({"kind": "namespace", "name": "a", "lease": "3s"}, "lease", "must be between 4s and 7d, not 3s."),
        ({"kind": "namespace", "name": "a", "lease": "4.0005s"}, "lease", "a whole number of milliseconds"),
    ],
)
def test_rules_of_documents(document: Any, field: str, message: str) -> None:
    faults = faults_of(document)
    assert list(faults) == [field]
    assert message in faults[field]


def test_namespaces() -> None:
    assert loaded(
        "kind: namespace\nname: a\n---\nkind: namespace\nname: b\nweight: 10000\nlease: 90s\nlabels: {x: y}"
    ) == [
        NamespaceSpec(name="a", weight=100, lease=None, labels={}),
        NamespaceSpec(name="b", weight=10_000, lease=timedelta(seconds=90), labels={"x": "y"}),
    ]


def test_all_faults_of_all_documents_come_at_once_in_the_order_of_the_file() -> None:
    with pytest.raises(Invalid) as raised:
        loaded(
            """kind: job
run:
  comand: [a]
  env: {A: true}
priority: 5000
name: UPPER
---
kind: jib
---
kind: job
name: b
run: {command: ["{{ x }}"]}
"""
        )
    assert raised.value.message == "The input has 6 faults: correct them and try again."
    assert [fault.field for fault in raised.value.faults] == [
        "jobs.yaml:3:3 run.comand",
        "jobs.yaml:4:9 run.env.A",
        "jobs.yaml:5:1 priority",
        "jobs.yaml:6:1 name",
        "jobs.yaml:8:1 kind",
        "jobs.yaml:12:17 run.command[0]",
    ]


def test_faults_of_a_request_have_no_file_but_a_path() -> None:
    with pytest.raises(Invalid) as raised:
        load_documents(raw_documents([job(), job(name="b", run={"command": [True]})]))
    assert [fault.field for fault in raised.value.faults] == ["documents[1].run.command[0]"]
    with pytest.raises(Invalid) as raised:
        from_document({"name": "a", "run": {"command": []}, "priority": "x"})
    assert [fault.field for fault in raised.value.faults] == ["run.command", "priority"]


def test_from_document_takes_jobs_only() -> None:
    assert from_document({"name": "a", "run": RUN}) == from_document(job())
    with pytest.raises(Invalid) as raised:
        from_document({"kind": "namespace", "name": "a"})
    assert [str(fault) for fault in raised.value.faults] == ["kind: must be job, not namespace."]


def test_a_name_is_written_once_per_namespace_and_kind() -> None:
    same = "kind: job\nname: a\nrun: {command: [x]}\n---\n"
    other = "kind: job\nnamespace: b\nname: a\nrun: {command: [x]}\n---\nkind: namespace\nname: a\n---\n"
    assert len(loaded(same + other)) == 3
    with pytest.raises(Invalid) as raised:
        loaded(same + other + same)
    (fault,) = raised.value.faults
    assert (
        str(fault)
        == 'jobs.yaml:13:1: the job "a" in the namespace default is written twice: keep one of them.'
    )


def test_a_file_that_is_wrong_everywhere_gets_a_bounded_answer() -> None:
    with pytest.raises(Invalid, match="5000 faults, 200 of them shown") as raised:
        from_document(job(labels={f"a{n}": True for n in range(5000)}))
    assert len(raised.value.faults) == 200


PLACEMENT = {
    "labels": {"zone": "eu"},
    "affinity": {
        "required": [{"key": "cores", "operator": "Gt", "values": [8]}],
        "preferred": [{"weight": 5, "key": "ssd", "operator": "Exists"}],
    },
    "anti_affinity": {
        "required": [{"jobs": ["b", "a"]}],
        "preferred": [{"weight": 7, "labels": {"load": "heavy"}}],
    },
    "tolerations": [{"key": "spot", "value": "yes", "effect": "NoSchedule"}, {"operator": "Exists"}],
    "resources": {"cpu": 1, "memory": "512Mi", "gpu": 0},
    "pool": "batch",
}


def test_the_words_of_coming_versions_are_read_already() -> None:
    document = job(
        placement=PLACEMENT, deadline="2h", limits=["tool:claude"], concurrency={"max": 1, "key": "k"}
    )
    (spec,) = load_documents(raw_documents([document]))
    assert isinstance(spec, JobSpec)
    assert spec.deadline == timedelta(hours=2)
    assert spec.limits == ("tool:claude",)
    assert spec.concurrency == Concurrency(max=1, key="k")
    assert spec.placement.resources == Resources(cpu=1, memory=512 * 1024**2)
    assert spec.placement.affinity.required[0].operator is Operator.GREATER
    assert spec.placement.affinity.required[0].values == ("8",)
    assert spec.placement.anti_affinity == AntiAffinity(
        required=(Neighbour(jobs=("a", "b")),),
        preferred=(UnlikedNeighbour(weight=7, labels={"load": "heavy"}),),
    )


@pytest.mark.parametrize(
    ("keys", "field", "message"),
    [
        ({"concurrency": {"max": 0}}, "concurrency.max", "must be between 1 and"),
        ({"concurrency": {"key": "{{ x"}}, "concurrency.key", "the template"),
        ({"limits": ["claude"]}, "limits[0]", "use a kind and a name, such as tool:claude."),
        ({"placement": {"label": {}}}, "placement.label", 'did you mean "labels"?'),
        ({"placement": {"resources": {"memory": "1Xi"}}}, "placement.resources.memory", "is not a size"),
        ({"placement": {"resources": {"cpu": -1}}}, "placement.resources.cpu", "must be between 0 and"),
        ({"placement": {"resources": {"gpu": 0.5}}}, "placement.resources.gpu", "must be a whole number"),
        (
            {"placement": {"affinity": {"required": [{"key": "a", "operator": "Is"}]}}},
            "placement.affinity.required[0].operator",
            "is not a known value",
        ),
        (
            {"placement": {"affinity": {"required": [{"key": "a", "operator": "In"}]}}},
            "placement.affinity.required[0]",
            "In needs at least one of values.",
        ),
        (
            {"placement": {"affinity": {"required": [{"key": "a", "operator": "Lt", "values": ["x"]}]}}},
            "placement.affinity.required[0]",
            "Lt needs one whole number in values.",
        ),
        (
            {"placement": {"affinity": {"preferred": [{"key": "a", "operator": "Exists"}]}}},
            "placement.affinity.preferred[0]",
            '"weight" is missing',
        ),
        (
            {"placement": {"anti_affinity": {"required": [{}]}}},
            "placement.anti_affinity.required[0]",
            "name the jobs",
        ),
        (
            {"placement": {"anti_affinity": {"preferred": [{"jobs": ["a"]}]}}},
            "placement.anti_affinity.preferred[0]",
            '"weight" is missing',
        ),
        ({"placement": {"tolerations": [{"value": "a"}]}}, "placement.tolerations[0]", "Equal needs a key"),
        (
            {"placement": {"tolerations": [{"operator": "Exists", "value": "a"}]}},
            "placement.tolerations[0]",
            "remove value",
        ),
        ({"placement": {"pool": "A B"}}, "placement.pool", "use the name of a pool."),
    ],
)
def test_rules_of_coming_words(keys: dict[str, Any], field: str, message: str) -> None:
    faults = faults_of(job(**keys))
    assert list(faults) == [field]
    assert message in faults[field]
