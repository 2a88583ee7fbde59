"""Record which functions of the project this process calls, and when.

A copy of this file named `sitecustomize.py` lies in the trace folder, and PYTHONPATH names that folder:
Python runs the copy at the start of every process. The keeper starts isolated (`-I -S`) and ignores
PYTHONPATH. Therefore the hook of its parent starts it with `python -I -S sitecustomize.py KEEPER ARGUMENTS`.

A line is added to `PID.trace` when a function is called or a coroutine is resumed, at most once per function
and millisecond: time on the monotonic clock, thread, asyncio task, file and function. Calls made by an import
are left out.
"""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

_HERE = Path(__file__).resolve()
_ISOLATED = ["-I", "-S"]


class Recorder:
    def __init__(self, folder: Path, checkout: Path) -> None:
        self._root = f"{checkout}/"
        self._pid = os.getpid()
        self._file = os.open(folder / f"{self._pid}.trace", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        # Code object → its file below the checkout; empty for code that does not belong to the project.
        self._names: dict[CodeType, str] = {}
        self._last: dict[CodeType, int] = {}
        self._write(" ".join(sys.orig_argv))

    def install(self) -> None:
        threading.setprofile(self._on_event)
        sys.setprofile(self._on_event)

    def _on_event(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call":
            return
        code = frame.f_code
        name = self._names.get(code)
        if name is None:
            name = self._names[code] = self._name_of(code)
        now = time.monotonic_ns()
        if not name or self._last.get(code) == now // 1_000_000:
            return
        self._last[code] = now // 1_000_000
        # A child between fork and exec runs under another account and must not write here.
        if os.getpid() == self._pid and not self._is_importing(frame.f_back):
            thread = threading.current_thread().name
            self._write(f"{now}\t{thread}\t{_task_name()}\t{name}\t{code.co_qualname}")

    def _name_of(self, code: CodeType) -> str:
        path = code.co_filename
        ours = path.startswith(f"{self._root}hetuflow_") and code.co_name != "<module>"
        return path.removeprefix(self._root) if ours else ""

    @staticmethod
    def _is_importing(frame: FrameType | None) -> bool:
        while frame is not None:
            if frame.f_code.co_name == "<module>" and frame.f_globals.get("__name__") != "__main__":
                return True
            frame = frame.f_back
        return False

    def _write(self, line: str) -> None:
        os.write(self._file, f"{line}\n".encode())


def _task_name() -> str:
    asyncio = sys.modules.get("asyncio")
    try:
        task = asyncio.current_task() if asyncio is not None else None
    except (AttributeError, RuntimeError):  # asyncio is being imported, or no event loop runs in this thread
        return ""
    return task.get_name() if task is not None else ""


def _record() -> None:
    folder = _HERE.parent
    Recorder(folder, Path((folder / "checkout").read_text(encoding="utf-8"))).install()


def _hook_isolated_children() -> None:
    original = subprocess.Popen.__init__

    def start(self: Any, args: Any, *rest: Any, **options: Any) -> None:
        if isinstance(args, list) and args[1:3] == _ISOLATED:
            args = [*args[:3], str(_HERE), *args[3:]]
        original(self, args, *rest, **options)

    subprocess.Popen.__init__ = start  # type: ignore[method-assign] # the agent must not know of being measured


if __name__ == "__main__":
    del sys.argv[0]
    _record()
    runpy.run_path(sys.argv[0], run_name="__main__")
elif __name__ == "sitecustomize" and any("hetuflow_" in argument for argument in sys.orig_argv):
    _hook_isolated_children()
    _record()
