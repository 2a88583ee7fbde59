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
        # By id, because equal code of different files compares as equal; the entry keeps the id valid.
        self._known: dict[int, _Function] = {}
        self._write(" ".join(sys.orig_argv))

    def install(self) -> None:
        threading.setprofile(self._on_event)
        sys.setprofile(self._on_event)

    def _on_event(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call":
            return
        function = self._known.get(id(frame.f_code))
        if function is None:
            function = self._known[id(frame.f_code)] = _Function(frame.f_code, self._root)
        now = time.monotonic_ns()
        if not function.file or function.recorded == now // 1_000_000:
            return
        function.recorded = now // 1_000_000
        # A child between fork and exec runs under another account and must not write here.
        if os.getpid() == self._pid and not self._is_importing(frame.f_back):
            where = f"{threading.current_thread().name}\t{_task_name()}"
            self._write(f"{now}\t{where}\t{function.file}\t{function.code.co_qualname}")

    @staticmethod
    def _is_importing(frame: FrameType | None) -> bool:
        while frame is not None:
            if frame.f_code.co_name == "<module>" and frame.f_globals.get("__name__") != "__main__":
                return True
            frame = frame.f_back
        return False

    def _write(self, line: str) -> None:
        os.write(self._file, f"{line}\n".encode())


class _Function:
    def __init__(self, code: CodeType, root: str) -> None:
        self.code = code
        ours = code.co_filename.startswith(f"{root}hetuflow_") and code.co_name != "<module>"
        # Below the checkout; empty for code that does not belong to the project.
        self.file = code.co_filename.removeprefix(root) if ours else ""
        # The millisecond of the last line about it.
        self.recorded = 0


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
