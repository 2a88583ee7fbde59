"""Envelope encryption: bound to its place, and re-wrapped without touching the value."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hetuflow_core.errors import Conflict
from hetuflow_server.secrets.keyring import Keyring

OLD, NEW = "o" * 40, "n" * 40


def test_a_value_is_sealed_for_one_place_only() -> None:
    ring = Keyring([OLD])
    sealed = ring.seal("hunter22", "secret-1/1")
    assert ring.open(sealed, "secret-1/1") == "hunter22"
    assert b"hunter22" not in sealed.ciphertext + sealed.wrapped_key
    assert "hunter22" not in repr(sealed)
    with pytest.raises(Conflict, match="belongs elsewhere"):
        ring.open(sealed, "secret-1/2")
    damaged = replace(sealed, ciphertext=sealed.ciphertext[:-1] + b"\0")
    with pytest.raises(Conflict, match="damaged"):
        ring.open(damaged, "secret-1/1")


def test_two_values_share_nothing() -> None:
    ring = Keyring([OLD])
    one, two = ring.seal("same", "a"), ring.seal("same", "a")
    assert one.ciphertext != two.ciphertext
    assert one.wrapped_key != two.wrapped_key


def test_a_new_key_takes_over_while_the_former_still_opens() -> None:
    sealed = Keyring([OLD]).seal("hunter22", "a")
    both, new = Keyring([NEW, OLD]), Keyring([NEW])
    assert both.open(sealed, "a") == "hunter22"
    with pytest.raises(Conflict) as unknown:
        new.open(sealed, "a")
    assert unknown.value.code == "secret.key_unknown"
    again = both.rewrap(sealed, "a")
    assert again.ciphertext == sealed.ciphertext
    assert new.open(again, "a") == "hunter22"
    assert again.key_id == new.current != sealed.key_id
