"""The wording of all that people read: plain English, and log events that are short statements."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.wording.__main__ import files_below
from tests.support.wording.phrases import PHRASES, advice_for
from tests.support.wording.texts import Text, log_events_of, texts_of

ROOT = Path(__file__).parents[3]
# Folders and files whose texts are rewritten. New code belongs here from the start.
REWORDED = [
    "CHANGELOG.md",
    "README.md",
    "docs/design/attempt.md",
    "docs/design/claim.md",
    "docs/explanation/differences.md",
    "docs/explanation/index.md",
    "docs/howto/development-system.md",
    "docs/howto/examples.md",
    "docs/howto/index.md",
    "docs/index.md",
    "docs/reference/index.md",
    "docs/tutorials",
    "examples/README.md",
    "hetuflow_agent/app.py",
    "hetuflow_agent/attempt",
    "hetuflow_agent/cli.py",
    "hetuflow_agent/executors/environment.py",
    "hetuflow_agent/executors/registry.py",
    "hetuflow_agent/folders/spare_folders.py",
    "hetuflow_agent/gateway/clients.py",
    "hetuflow_agent/gateway/failures.py",
    "hetuflow_agent/gateway/http_connection.py",
    "hetuflow_agent/gateway/transport.py",
    "hetuflow_agent/keeper",
    "hetuflow_agent/logs/shipper.py",
    "hetuflow_agent/logs/tail.py",
    "hetuflow_agent/loops/commands.py",
    "hetuflow_agent/loops/heartbeat.py",
    "hetuflow_agent/loops/poller.py",
    "hetuflow_agent/loops/reporter.py",
    "hetuflow_agent/processes",
    "hetuflow_agent/settings.py",
    "hetuflow_core/__init__.py",
    "hetuflow_core/access",
    "hetuflow_core/addresses.py",
    "hetuflow_core/agent",
    "hetuflow_core/artifact_paths.py",
    "hetuflow_core/audit_chain.py",
    "hetuflow_core/calendar",
    "hetuflow_core/daemon",
    "hetuflow_core/durations.py",
    "hetuflow_core/environment_variables.py",
    "hetuflow_core/errors.py",
    "hetuflow_core/events",
    "hetuflow_core/explanation.py",
    "hetuflow_core/flow",
    "hetuflow_core/ids.py",
    "hetuflow_core/limits.py",
    "hetuflow_core/messages",
    "hetuflow_core/moved_modules.py",
    "hetuflow_core/placement",
    "hetuflow_core/resources",
    "hetuflow_core/retry",
    "hetuflow_core/runtime",
    "hetuflow_core/schedule",
    "hetuflow_core/secret_values.py",
    "hetuflow_core/states.py",
    "hetuflow_core/tracing.py",
    "hetuflow_server/app",
    "hetuflow_server/auth_settings.py",
    "hetuflow_server/cli",
    "hetuflow_server/daemons/on_task_end.py",
    "hetuflow_server/dev",
    "hetuflow_server/flows/on_task_end.py",
    "hetuflow_server/gateway/polls.py",
    "hetuflow_server/postgres",
    "hetuflow_server/queue/backlog_index.py",
    "hetuflow_server/queue/candidates.py",
    "hetuflow_server/queue/claim_transitions.py",
    "hetuflow_server/queue/dispatcher.py",
    "hetuflow_server/queue/end_decisions.py",
    "hetuflow_server/queue/end_hooks.py",
    "hetuflow_server/queue/fairness.py",
    "hetuflow_server/queue/finish.py",
    "hetuflow_server/queue/matching.py",
    "hetuflow_server/queue/on_task_end.py",
    "hetuflow_server/queue/waiting_polls.py",
    "hetuflow_server/requests",
    "hetuflow_server/schedules/backfills/fires.py",
    "hetuflow_server/schedules/on_task_end.py",
    "hetuflow_server/settings.py",
    "hetuflow_server/webhooks/on_task_end.py",
    "hetuflow_server/webhooks/signatures.py",
    "tests/e2e/project/test_pages.py",
    "tests/support/docs",
    "tests/unit/project/test_docs_runner.py",
    "tests/unit/project/test_readme.py",
    "tools/terminal_picture.py",
]
# Lines that may keep a phrase, with the reason: (path, part of the line).
ALLOWED: list[tuple[str, str]] = []
_MOST_ALLOWED = 20
_LONGEST_EVENT = 70


def _phrases(path: Path) -> list[str]:
    name = path.relative_to(ROOT).as_posix()
    return [
        f"{name}:{text.line}: {match[0]!r} → {advice_for(match)}"
        for text in texts_of(path)
        for match in PHRASES.finditer(text.text)
        if not any(name == allowed and part in text.text for allowed, part in ALLOWED)
    ]


@pytest.mark.parametrize("name", REWORDED)
def test_texts_are_plain_english(name: str) -> None:
    files = list(files_below(ROOT / name))
    assert files, "the list names a path that does not exist"
    assert [finding for file in files for finding in _phrases(file)] == []


@pytest.mark.parametrize("name", REWORDED)
def test_log_events_are_short_statements_with_their_data_in_fields(name: str) -> None:
    files = [file for file in files_below(ROOT / name) if file.suffix == ".py"]
    events = [event for file in files for event in log_events_of(file)]
    assert [event for event in events if not _is_short_statement(event)] == []


def _is_short_statement(event: Text) -> bool:
    return len(event.text) <= _LONGEST_EVENT and re.fullmatch(r"[a-z0-9].*[^.!?]", event.text) is not None


def test_few_lines_are_allowed() -> None:
    assert len(ALLOWED) <= _MOST_ALLOWED


def test_the_list_finds_comments_docstrings_messages_and_prose(tmp_path: Path) -> None:
    python, page = tmp_path / "a.py", tmp_path / "a.md"
    python.write_text(
        '"""What is told."""\n# Whoever asks\nx = 1\nlog.info("Somebody goes on.")\n'
        'def test_nobody_is_told(): ...\nsql = "SELECT what is told FROM beside"\n'
    )
    page.write_text("A node is no task.\n\n```\nbeside\n```\n`somebody`\n")
    found = [
        (text.line, match[0].lower())
        for file in (python, page)
        for text in texts_of(file)
        for match in PHRASES.finditer(text.text)
    ]
    assert {line for line, _ in found[:-1]} == {1, 2, 4, 5}
    assert found[-1] == (1, "is no task")
    assert [event.text for event in log_events_of(python)] == ["Somebody goes on."]
