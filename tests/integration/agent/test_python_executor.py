"""The python executor: real threads, a real event loop, real processes."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hetuflow_agent.executors.environment import base_environment, task_environment
from hetuflow_agent.executors.interface import Execution, ExecutorHost, SpawnFailed, Unavailable
from hetuflow_agent.executors.python import PythonExecutor
from hetuflow_agent.executors.python_calls import ThreadExecution
from hetuflow_agent.folders.workdir import ClaimDirectory
from hetuflow_agent.processes.command import Exit
from hetuflow_core.errors import Invalid
from tests.support.agent.executors import assignment_for, claim_directory, executor_host, host_settings
from tests.support.waiting import wait_until

FOLDER = Path(__file__).parents[2] / "support" / "agent" / "pythonjobs"
MODULE = "task_functions"


@pytest.fixture
def directory(tmp_path: Path) -> ClaimDirectory:
    return claim_directory(tmp_path)


@pytest.fixture
async def executor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[PythonExecutor]:
    monkeypatch.syspath_prepend(str(FOLDER))
    made = PythonExecutor(ExecutorHost(host_settings(tmp_path, python_modules=(MODULE, "acme.*"))))
    yield made
    await made.stop()


async def begin(
    executor: PythonExecutor, directory: ClaimDirectory, function: str, **kwargs: Any
) -> Execution:
    assignment = assignment_for("python", {"function": f"{MODULE}:{function}", "kwargs": kwargs})
    executor.check(assignment.run)
    environment = task_environment(base_environment({}), assignment, directory)
    return await executor.start(assignment, directory, environment)


async def call(executor: PythonExecutor, directory: ClaimDirectory, function: str, **kwargs: Any) -> Exit:
    execution = await begin(executor, directory, function, **kwargs)
    async with asyncio.timeout(60):
        end = await execution.wait()
    execution.close()
    return end


async def touched(mark: Path) -> None:
    def look() -> None:
        wait_until(mark.exists, what=f"{mark} to appear")

    await asyncio.to_thread(look)


@contextmanager
def untraced() -> Iterator[None]:
    """Python 3.11 enters no traced function while an exception waits for another thread to wake up: measuring
    coverage would hold up the event loop, signals included, until that thread has ended.
    """
    tracer = sys.gettrace()
    sys.settrace(None)
    try:
        yield
    finally:
        sys.settrace(tracer)


def output(directory: ClaimDirectory) -> Any:
    return msgspec.json.decode(directory.output.read_bytes())


def text(directory: ClaimDirectory, stream: str) -> str:
    return directory.stream(stream).read_text()


async def test_a_function_runs_in_a_thread_and_its_result_is_the_output(
    executor: PythonExecutor, directory: ClaimDirectory
) -> None:
    assert await call(executor, directory, "add", a="2") == Exit(exit_code=0)
    assert output(directory) == {"result": 2.5}


async def test_types_context_and_progress(executor: PythonExecutor, directory: ClaimDirectory) -> None:
    end = await call(executor, directory, "typed", day="2026-01-02", order={"item": "x", "count": "3"})
    assert end.exit_code == 0
    assert output(directory) == {"day": "2026-01-02", "item": "x", "count": 3, "attempt": 2}
    assert directory.progress.read_text() == "40 half way nearly\n"


async def test_what_tasks_print_and_log_does_not_mix(
    executor: PythonExecutor, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = {who: claim_directory(tmp_path / who) for who in ("anna", "berta")}
    ends = await asyncio.gather(*(call(executor, folders[who], "speak", who=who) for who in folders))
    assert [end.exit_code for end in ends] == [0, 0]
    for who, folder in folders.items():
        assert text(folder, "stdout") == f"{who} one\n{who} two\n"
        assert text(folder, "stderr").splitlines() == [
            f"WARNING acme: {who} logs",
            f"{who} err",
            f"INFO hetuflow.task: {who} of nightly",
        ]
    print("the agent itself")
    seen = capsys.readouterr()
    assert "anna" not in seen.out + seen.err
    assert "the agent itself" in seen.out


async def test_coroutines_share_a_loop_and_do_not_mix(executor: PythonExecutor, tmp_path: Path) -> None:
    folders = {who: claim_directory(tmp_path / who) for who in ("anna", "berta")}
    ends = await asyncio.gather(*(call(executor, folders[who], "speak_async", who=who) for who in folders))
    assert [end.exit_code for end in ends] == [0, 0]
    for who, folder in folders.items():
        assert text(folder, "stdout") == f"{who} 0\n{who} 1\n{who} 2\n"
        assert output(folder) == {"result": who}


async def test_an_exception_is_a_failure_with_its_traceback(
    executor: PythonExecutor, directory: ClaimDirectory
) -> None:
    end = await call(executor, directory, "fail", message="no such day")
    assert (end.exit_code, end.reason, end.message) == (1, "exception", "ValueError: no such day")
    assert "Traceback" in text(directory, "stderr")
    assert "raise ValueError(message)" in text(directory, "stderr")
    assert not directory.output.read_bytes()


async def test_whatever_an_exception_says_its_end_can_be_told(
    executor: PythonExecutor, directory: ClaimDirectory
) -> None:
    end = await call(executor, directory, "fail", message="a\0b\udc80c \N{GRINNING FACE}")
    assert (end.exit_code, end.message) == (1, "ValueError: a\ufffdb\ufffdc \N{GRINNING FACE}")


async def test_leaving_with_a_code_and_returning_nonsense(executor: PythonExecutor, tmp_path: Path) -> None:
    for code, seen in ((7, 7), (263, 7), (-1, 255)):  # as a process would be seen to leave
        assert (
            await call(executor, claim_directory(tmp_path / f"a{code}"), "leave", code=code)
        ).exit_code == seen
    end = await call(executor, claim_directory(tmp_path / "b"), "give_back_nonsense")
    assert (end.exit_code, end.reason) == (1, "exception")
    assert "JSON" in str(end.message)


async def test_who_gives_up_without_being_asked_to_has_failed(
    executor: PythonExecutor, directory: ClaimDirectory
) -> None:
    end = await call(executor, directory, "give_up")
    assert (end.exit_code, end.reason) == (1, "exception")


async def test_a_daemon_may_write_without_end(executor: PythonExecutor, tmp_path: Path) -> None:
    settings = host_settings(tmp_path, python_modules=(MODULE,), output_limit=2_000)
    executor.adapt(ExecutorHost(settings))
    ends = []
    for slot in (None, 0):
        directory = claim_directory(tmp_path / f"slot-{slot}")
        options = {"function": f"{MODULE}:speak_async", "kwargs": {"who": "x" * 1_000}}
        execution = await executor.start(assignment_for("python", options, slot=slot), directory, {})
        ends.append((await execution.wait()).reason)
    assert ends == ["output_limit", None]


@pytest.mark.parametrize("function", ["chatter", "chatter_async"])
async def test_what_writes_too_much_is_ended(
    executor: PythonExecutor, directory: ClaimDirectory, tmp_path: Path, function: str
) -> None:
    settings = host_settings(tmp_path, python_modules=(MODULE,), output_limit=2_000)
    executor.adapt(ExecutorHost(settings))
    end = await call(executor, directory, function)
    assert (end.exit_code, end.reason) == (None, "output_limit")
    assert "raise agent.output_limit" in str(end.message)
    written = sum(len(text(directory, stream)) for stream in ("stdout", "stderr"))
    assert 1_900 < written <= 2_000


async def test_a_thread_that_listens_ends_when_told(
    executor: PythonExecutor, directory: ClaimDirectory
) -> None:
    mark = directory.root / "mark"
    execution = await begin(executor, directory, "wait_politely", mark=str(mark))
    await touched(mark)
    async with asyncio.timeout(30):
        assert await execution.end(grace=60) == Exit()


async def test_a_thread_that_does_not_listen_is_made_to_end(
    executor: PythonExecutor, directory: ClaimDirectory
) -> None:
    mark = directory.root / "mark"
    execution = await begin(executor, directory, "wait_deaf", mark=str(mark))
    await touched(mark)
    async with asyncio.timeout(30):
        assert await execution.end(grace=0.05) == Exit()


async def test_a_thread_that_cannot_be_ended_is_given_up_and_said_so(
    executor: PythonExecutor, directory: ClaimDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hetuflow_agent.executors.python_calls._LAST_SECONDS", 0.05)
    mark, released = directory.root / "mark", directory.root / "released"
    os.mkfifo(released)
    execution = await begin(executor, directory, "block", mark=str(mark), released=str(released))
    assert isinstance(execution, ThreadExecution)
    await touched(mark)
    with untraced():
        end = await execution.end(grace=0.05)
        released.write_text("now\n")
        execution._thread.join()
    assert end.reason == "python_stuck"
    assert not end.no_process_left, "it may still write into its files"
    assert "process=True" in str(end.message)
    assert await execution.wait() == end


async def test_a_coroutine_is_cancelled_and_may_clean_up(
    executor: PythonExecutor, directory: ClaimDirectory
) -> None:
    mark = directory.root / "mark"
    execution = await begin(executor, directory, "wait_async", mark=str(mark))
    await touched(mark)
    await asyncio.to_thread(execution.signal, signal.SIGTERM)
    async with asyncio.timeout(30):
        assert await execution.wait() == Exit()
    assert (directory.root / "mark.cleaned").exists()


async def planned(
    executor: PythonExecutor, directory: ClaimDirectory, function: str, **kwargs: Any
) -> asyncio.subprocess.Process:
    """The planned program, run as an agent would."""
    assignment = assignment_for("python", {"function": f"{MODULE}:{function}", "kwargs": kwargs})
    environment = task_environment(base_environment({}), assignment, directory)
    plan = await executor.plan(assignment, directory, environment)
    assert plan is not None
    with directory.stream("stdout").open("ab") as out, directory.stream("stderr").open("ab") as err:
        return await asyncio.create_subprocess_exec(
            *plan.argv, cwd=plan.cwd, env=dict(plan.env), stdout=out, stderr=err
        )


async def code_of(process: asyncio.subprocess.Process) -> int:
    async with asyncio.timeout(60):
        return await process.wait()


async def test_a_process_of_its_own(executor: PythonExecutor, directory: ClaimDirectory) -> None:
    assert await code_of(await planned(executor, directory, "in_process", value="4")) == 0
    assert output(directory) == {"double": 8, "job": "nightly"}
    assert text(directory, "stdout") == "in a process\n"
    assert text(directory, "stderr") == "INFO acme: of its own\n"
    assert directory.progress.read_text() == "50 half\n"
    assert (directory.root / "call.json").stat().st_mode & 0o077 == 0


async def test_a_process_is_ended_in_order(executor: PythonExecutor, directory: ClaimDirectory) -> None:
    mark = directory.root / "mark"
    process = await planned(executor, directory, "process_waits", mark=str(mark))
    await touched(mark)
    process.terminate()
    assert await code_of(process) == 128 + signal.SIGTERM
    assert (directory.root / "mark.cleaned").exists()


async def test_a_process_that_fails_or_is_given_the_wrong_things(
    executor: PythonExecutor, tmp_path: Path
) -> None:
    folder = claim_directory(tmp_path / "a")
    assert await code_of(await planned(executor, folder, "process_fails")) == 1
    assert "RuntimeError: broken in there" in text(folder, "stderr")
    folder = claim_directory(tmp_path / "b")
    assert await code_of(await planned(executor, folder, "in_process", valu=1)) == 2
    assert "value: is missing" in text(folder, "stderr")


async def test_other_functions_are_no_programs(executor: PythonExecutor, directory: ClaimDirectory) -> None:
    assignment = assignment_for("python", {"function": f"{MODULE}:add", "kwargs": {"a": 1}})
    assert await executor.plan(assignment, directory, {}) is None


async def test_wrong_parameters_are_refused_before_anything_runs(
    executor: PythonExecutor, directory: ClaimDirectory
) -> None:
    with pytest.raises(Invalid) as raised:
        await begin(executor, directory, "add", a="x", c=1)
    assert {fault.field for fault in raised.value.faults} == {"a", "c"}


@pytest.mark.parametrize("function", ["os:system", "subprocess:run", "task_functions.more:x", "acme:x"])
async def test_modules_that_are_not_listed_are_not_touched(executor: PythonExecutor, function: str) -> None:
    with pytest.raises(Invalid, match="python_modules"):
        executor.check(assignment_for("python", {"function": function, "kwargs": {}}).run)
    executor.check(assignment_for("python", {"function": "acme.reports:x"}).run)


@pytest.mark.parametrize(("function", "said"), [("not_a_task", "@task"), ("nothing", "@task")])
async def test_only_decorated_functions_run(
    executor: PythonExecutor, directory: ClaimDirectory, function: str, said: str
) -> None:
    with pytest.raises(SpawnFailed, match=said):
        await begin(executor, directory, function)


async def test_a_module_that_cannot_be_imported_is_said(
    executor: PythonExecutor, directory: ClaimDirectory
) -> None:
    assignment = assignment_for("python", {"function": "acme.nowhere:x", "kwargs": {}})
    with pytest.raises(SpawnFailed, match="cannot be imported"):
        await executor.start(assignment, directory, {})


def test_without_modules_the_executor_is_not_offered(tmp_path: Path) -> None:
    with pytest.raises(Unavailable):
        PythonExecutor(executor_host(tmp_path))


async def test_a_module_that_is_not_listed_is_not_even_imported(executor: PythonExecutor) -> None:
    """Whether it is brief is asked before anything else is."""
    assignment = assignment_for("python", {"function": "antigravity:fly"})
    with pytest.raises(Invalid, match=r"list it in agent\.python_modules"):
        await executor.is_brief(assignment)
    assert "antigravity" not in sys.modules
