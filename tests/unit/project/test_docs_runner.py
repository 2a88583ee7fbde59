"""The runner of documentation pages notices everything that is not as the page shows it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.docs.blocks import blocks_of, commands_of
from tests.support.docs.expected import contains, matches
from tests.support.docs.page import run_blocks


def run(text: str, folder: Path) -> None:
    run_blocks("page.md", blocks_of(text), folder)


def console(*lines: str, above: str = "", options: str = "") -> str:
    return "\n".join([*([above] if above else []), f"```console{options}", *lines, "```", ""])


def test_commands_have_continued_lines_here_documents_and_outputs() -> None:
    (block,) = blocks_of(console("$ echo a \\", "  b", "a b", "$ cat <<'EOF'", "$ x", "EOF", "x", "$ true"))
    first, second, third = commands_of(block)
    assert (first.line, first.typed, first.printed) == (2, "echo a \\\n  b", "a b\n")
    assert second.typed == "cat <<'EOF'\n$ x\nEOF"
    assert third.typed == "true"


@pytest.mark.parametrize(
    ("output", "expected", "same"),
    [
        ("a\n", "a\n", True),
        ("a\n", "b\n", False),
        ("a\nb\n", "a\n", False),
        ("id 17 is done\n", "id … is done\n", True),
        ("id 17\nis done\n", "id … is done\n", False),
        ("a\nb\nc\nd\n", "a\n…\nd\n", True),
        ("a\nd\n", "a\n…\nd\n", True),
        ("a\nb\nc\n", "a\n…\nd\n", False),
        ("NAME     SIZE\nx           1\n", "NAME  SIZE\nx  1\n", True),
        ("1.5\n", "1…5\n", True),
        ("105\n", "1.5\n", False),
    ],
)
def test_outputs_match_with_wildcards(output: str, expected: str, same: bool) -> None:
    assert matches(output, expected) is same


def test_lines_that_appear_in_between_are_found_in_order() -> None:
    assert contains("log\nready at x\nlog\n", "ready at …\n")
    assert contains("one\nlog\ntwo\n", "one\ntwo\n")
    assert not contains("two\none\n", "one\ntwo\n")


def test_a_page_keeps_folder_variables_and_exit_codes(tmp_path: Path) -> None:
    run(
        '```yaml title="sub/a.yaml"\nx: 1\n```\n'
        + console("$ cd sub", "$ NAME=value; export OTHER=2")
        + console("$ cat a.yaml; echo $NAME $OTHER", "x: 1", "value 2", "$ (exit 7)", "$ echo $?", "7")
        + console("$ pwd; echo none$NAME", str(tmp_path), "none", options=' title="other"')
        + "```python\nprint('hello')\n```\n\n```text\nhello\n```\n",
        tmp_path,
    )


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (console("$ echo a", "b"), r"page.md:2: echo a\nexited with 0 and printed:\na"),
        (console("$ false"), "exited with 1"),
        (console("$ false | true"), "exited with 1"),
        (console("echo a"), "starts with a command"),
        ("```yaml\nx: 1\n```\n", "needs a title"),
        ("```python\nprint(1)\n```\n\n```text\n2\n```\n", "printed:\n1"),
        (console("$ false", "ready", above="<!-- keeps running -->"), "false ended"),
        (console("$ sleep 600", above="<!-- keeps running -->"), "no output to wait for"),
        (console("$ true", above="<!-- not run: -->"), "reason"),
    ],
)
def test_a_page_that_is_not_true_fails(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        run(text, tmp_path)


def test_a_block_with_a_reason_is_not_run_and_one_that_keeps_running_is_ended(tmp_path: Path) -> None:
    run(
        console("$ exit 1", above="<!-- not run: it would end the shell -->")
        + console("$ echo ready; sleep 600; echo over", "ready", above="<!-- keeps running -->")
        + console("$ echo next", "next"),
        tmp_path,
    )
