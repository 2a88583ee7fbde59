"""Run a page in a folder, block by block."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from tests.support.docs.blocks import Block, Command, blocks_of, commands_of
from tests.support.docs.expected import contains, matches
from tests.support.docs.shell import Shell
from tests.support.processes.processes import clean_environment
from tests.support.waiting import wait_until

PROJECT = Path(__file__).parents[3]
START = "make dev"
_ADDRESS = "127.0.0.1:8600"
_COMMAND_SECONDS = 120
_REPEAT_SECONDS = 60
_READS = re.compile(
    r"hetuflow (status|[a-z]+ (list|get|graph|tasks|logs|next|explain|versions|deliveries))\b"
)


def make_project_folder(folder: Path) -> None:
    """Put into a folder what a reader has in the project's folder and a page uses."""
    shutil.copytree(PROJECT / "examples", folder / "examples")
    (folder / ".venv").symlink_to(sys.prefix)
    for name in ("Makefile", "pyproject.toml", "requirements.lock"):
        shutil.copy(PROJECT / name, folder)
        # Older than .venv, so that make does not install this folder into the environment of the tests.
        os.utime(folder / name, (0, 0))


def run_page(path: Path, folder: Path) -> None:
    """Run all blocks of a page; an AssertionError names the line that is not true."""
    blocks = blocks_of(path.read_text(encoding="utf-8"))
    starts_the_system = any(
        command.typed == START
        for block in blocks
        if block.language == "console" and block.not_run is None
        for command in commands_of(block)
    )
    run_blocks(path.name, blocks, folder, needs_a_system=not starts_the_system)


def run_blocks(page: str, blocks: list[Block], folder: Path, *, needs_a_system: bool = False) -> None:
    with _Reader(page, folder) as reader:
        if needs_a_system:
            reader.prepare()
        for block, following in zip(blocks, [*blocks[1:], None], strict=True):
            if block.not_run is None:
                reader.follow(block, following)


class _Reader:
    """A reader of the page with the shells that the page asks for."""

    def __init__(self, page: str, folder: Path) -> None:
        self._page = page
        self._folder = folder
        self._shells: dict[str | None, Shell] = {}
        self._closing = ExitStack()
        self._prepared = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()

    def prepare(self) -> None:
        """Start a system for a page that does not start one, and activate the environment in every shell."""
        self._keep_running(Command(0, START, f"Hetuflow is ready at http://{_ADDRESS}\n"), self._new_shell())
        self._prepared = True

    def follow(self, block: Block, following: Block | None) -> None:
        if block.language == "console":
            self._type(block)
        elif block.title:
            file = self._folder / block.title
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(self._for_the_system(block.text), encoding="utf-8")
        elif block.language == "python":
            printed = following.text if following and following.language == "text" else ""
            program = self._folder / ".block.py"
            program.write_text(block.text, encoding="utf-8")
            self._run(Command(block.line, f"{sys.executable} {program}", printed), self._shell(None))
        else:
            assert block.language == "text", (
                f"{self._page}:{block.line}: a {block.language} block needs a title or a reason not to run it"
            )

    def _type(self, block: Block) -> None:
        commands = commands_of(block)
        shell = self._shell(block.title)
        for command, following in zip(commands, [*commands[1:], None], strict=True):
            if block.keeps_running and following is None:
                self._keep_running(command, shell)
                self._shells.pop(block.title)
            else:
                shows_code = following is not None and following.typed == "echo $?"
                self._run(command, shell, may_fail=shows_code)

    def _run(self, command: Command, shell: Shell, *, may_fail: bool = False) -> None:
        line = self._for_the_system(command.typed)
        deadline = time.monotonic() + _REPEAT_SECONDS
        while True:
            code, output = shell.run(line, timeout=_COMMAND_SECONDS)
            printed = self._for_the_page(output)
            if (may_fail or code == 0) and matches(printed, command.printed):
                return
            if not _READS.match(line) or time.monotonic() > deadline:
                raise AssertionError(
                    f"{self._page}:{command.line}: {command.typed}\n"
                    f"exited with {code} and printed:\n{printed}\nThe page shows:\n{command.printed}"
                )

    def _keep_running(self, command: Command, shell: Shell) -> None:
        where = f"{self._page}:{command.line}: {command.typed}"
        assert command.printed, f"{where} keeps running, but the page shows no output to wait for"
        shell.start(self._for_the_system(command.typed))

        def appeared() -> bool:
            assert not shell.ended, f"{where} ended:\n{shell.output}"
            return contains(self._for_the_page(shell.output), command.printed)

        wait_until(appeared, timeout=_COMMAND_SECONDS, what=f"the output of {command.typed}")

    def _shell(self, name: str | None) -> Shell:
        if name not in self._shells:
            self._shells[name] = shell = self._new_shell()
            if self._prepared:
                shell.run(". .venv/bin/activate", timeout=_COMMAND_SECONDS)
        return self._shells[name]

    def _new_shell(self) -> Shell:
        shell = Shell(self._folder, _environment(self._folder))
        self._closing.callback(shell.close)
        return shell

    def _for_the_system(self, text: str) -> str:
        return text.replace(_ADDRESS, self._address())

    def _for_the_page(self, text: str) -> str:
        return text.replace(self._address(), _ADDRESS)

    def _address(self) -> str:
        file = self._folder / ".hetuflow/dev.json"
        if not file.exists():
            return _ADDRESS
        return str(json.loads(file.read_text(encoding="utf-8"))["url"]).removeprefix("http://")


def _environment(folder: Path) -> Mapping[str, str]:
    variables = clean_environment(
        PATH="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        HOME=str(folder),
        # `make dev` passes it on: any number of systems run on this machine at a time.
        ARGS="--port 0",
        # Lines of standard output and standard error appear in the order in which the command writes them.
        PYTHONUNBUFFERED="1",
    )
    # Arguments of `make test` would override those of the `make` that a page calls.
    return {name: value for name, value in variables.items() if not name.startswith(("MAKE", "MFLAGS"))}
