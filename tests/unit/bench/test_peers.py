"""Peers are measured where they are installed, and skipped with a reason where they are not."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from bench.figure import SMOKE, Context
from bench.figures import peers as figure
from bench.figures.peers import CannotRun, told_by
from bench.peers import installing
from bench.peers.catalog import PEERS
from bench.peers.installing import CannotInstall, command_of, folder_of, install_all, versions_of, why_absent


@pytest.fixture(autouse=True)
def _empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_each_peer_says_how_it_is_run_and_has_a_program_and_a_folder() -> None:
    assert len({folder_of(peer) for peer in PEERS}) == len(PEERS)
    for peer in PEERS:
        assert bool(peer.python) != bool(peer.node), peer.name
        assert peer.how, peer.name
        assert peer.leaves_out, peer.name
        node = ["", *_node_command(peer)]
        runtime, program, *rest = command_of(peer, "where", "10") if peer.python else node
        assert Path(program).is_file(), peer.name
        assert rest == ["where", "10"]
        assert not peer.python or runtime.startswith(str(folder_of(peer)))


def _node_command(peer: installing.Peer) -> list[str]:
    program = Path(installing.__file__).parent / "programs" / peer.program
    return [str(program), "where", "10"]


def test_a_peer_that_was_never_installed_says_how_to() -> None:
    assert {why_absent(peer) for peer in PEERS} == {"not installed; python -m bench peers --install does it"}


def test_what_stood_in_the_way_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    good, bad = PEERS[0], PEERS[1]

    def install(peer: installing.Peer) -> str:
        if peer is bad:
            raise CannotInstall("nothing answers")
        return "it==1.0"

    monkeypatch.setattr(installing, "_install", install)
    said: list[str] = []
    install_all(said.append)
    assert why_absent(good) is None
    assert versions_of(good) == "it==1.0"
    assert why_absent(bad) == "nothing answers"
    assert f"{bad.name} skipped: nothing answers" in said
    # Once more: what is there is left alone, what is not is tried again.
    said.clear()
    install_all(said.append)
    assert f"{good.name} is installed: it==1.0" in said
    assert [one for one in said if one.startswith("installing")] == [
        f"installing {bad.name} into {folder_of(bad)}"
    ]


def test_one_that_was_installed_for_other_needs_is_absent() -> None:
    folder_of(PEERS[0]).mkdir(parents=True)
    file = folder_of(PEERS[0]) / "installed.json"
    file.write_text(json.dumps({"needs": ["another==1"], "versions": "another==1"}))
    assert why_absent(PEERS[0]) is not None
    file.write_text("torn")
    assert why_absent(PEERS[0]) is not None


def test_the_last_line_of_a_program_counts(tmp_path: Path) -> None:
    script = 'print("chatter"); print(\'{"created": 1, "drained": 0.5, "done": 10}\')'
    assert told_by([sys.executable, "-c", script], tmp_path) == {"created": 1, "drained": 0.5, "done": 10}


def test_a_program_that_fails_or_hangs_is_a_reason_to_skip(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(CannotRun, match="no such thing"):
        told_by([sys.executable, "-c", 'raise SystemExit("no such thing")'], tmp_path)
    monkeypatch.setattr(figure, "_SECONDS", 0.05)
    with pytest.raises(CannotRun, match="did not end"):
        told_by([sys.executable, "-c", "import signal; signal.pause()"], tmp_path)


def test_a_peer_that_has_not_done_all_of_it_is_no_rival(monkeypatch: pytest.MonkeyPatch) -> None:
    told = {"created": 1.0, "drained": 2.0, "done": 99.0}
    monkeypatch.setattr(figure, "told_by", lambda _command, _folder: told)
    monkeypatch.setattr(figure, "_place", lambda _context, _peer: ("where", lambda: None))
    context = Context(SimpleNamespace(), SMOKE, print)  # type: ignore[arg-type]  # nothing of it is asked
    rival = figure.Rival(PEERS[0])
    figure._measure_rival(context, rival)
    assert rival.why == "its program has done 99 of 100 no-ops"
    told["done"] = 100.0
    rival = figure.Rival(PEERS[0])
    figure._measure_rival(context, rival)
    assert (rival.why, rival.rates) == (None, [50.0])
