"""A development system of a checkout whose server, agent and keeper record what they execute."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any, Self

import psycopg

from tools.paths import profile_hook

_START_SECONDS = 180.0
_STOP_SECONDS = 60.0
_WAIT_SECONDS = 60.0
_POLL_SECONDS = 0.002


class MeasuredSystem:
    """`hetuflow dev` with embedded PostgreSQL in a temporary folder."""

    def __init__(self, checkout: Path) -> None:
        self._checkout = checkout
        self.folder = Path(tempfile.mkdtemp(prefix="hetuflow-paths-"))
        # For root, PostgreSQL and tasks may run under other accounts.
        self.folder.chmod(0o755)
        self.traces = self.folder / "traces"
        self._start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        shutil.rmtree(self.folder)

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request to the REST API; return the decoded response."""
        request = urllib.request.Request(
            f"{self._info['url']}/api/v1{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={
                "Authorization": f"Bearer {self._info['api_key']}",
                "Content-Type": "application/json",
            },
        )
        with urllib.request.urlopen(request) as response:
            return json.loads(response.read() or b"null")

    def wait_for(self, query: str, *values: Any) -> Any:
        """The first value that the query returns, as soon as that is neither null nor zero.

        The database is asked directly: a request to the server would execute files of the server.
        """
        deadline = time.monotonic() + _WAIT_SECONDS
        while time.monotonic() < deadline:
            row = self._database.execute(query, values).fetchone()
            if row is not None and row[0]:
                return row[0]
            time.sleep(_POLL_SECONDS)
        raise TimeoutError(f"The database did not show this within {_WAIT_SECONDS:.0f} seconds: {query}")

    def stop(self) -> None:
        """Stop all processes; then the traces are complete."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait(_STOP_SECONDS)

    def _start(self) -> None:
        self.traces.mkdir()
        shutil.copy(profile_hook.__file__, self.traces / "sitecustomize.py")
        (self.traces / "checkout").write_text(str(self._checkout), encoding="utf-8")
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("HETUFLOW_")}
        with (self.folder / "dev.log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    *(self._checkout / ".venv/bin/python", "-m", "hetuflow_server", "dev"),
                    *("--port", "0", "--data", self.folder / "data"),
                ],
                cwd=self.folder,
                env=inherited | {"PYTHONPATH": str(self.traces), "PYTHONDONTWRITEBYTECODE": "1"},
                stdout=log,
                stderr=log,
            )
        try:
            self._info = self._await_info()
            self._database = psycopg.connect(self._info["database_url"], autocommit=True)
        except BaseException:
            self.stop()
            raise

    def _await_info(self) -> Any:
        info = self.folder / "data/dev.json"
        deadline = time.monotonic() + _START_SECONDS
        while not info.exists():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError((self.folder / "dev.log").read_text(encoding="utf-8"))
            time.sleep(0.1)
        return json.loads(info.read_text(encoding="utf-8"))
