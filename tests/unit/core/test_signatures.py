"""Signatures of messages: whatever differs, and whatever is too old, is refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, strategies as st

from hetuflow_core.errors import Unauthenticated
from hetuflow_core.signatures import WINDOW, signature, verify
from hetuflow_server.webhooks.redelivery_delays import MOST_ATTEMPTS, is_final, next_pause

NOW = datetime(2026, 7, 1, 12, tzinfo=UTC)
SECRET = "hunter22-of-hooks"


@given(st.binary(max_size=50), st.text(min_size=4, max_size=20))
def test_what_was_signed_is_known_again(body: bytes, secret: str) -> None:
    header = signature(secret, body, NOW)
    assert verify(secret, body, header, NOW + timedelta(minutes=4)) == header.rpartition("v1=")[2]
    with pytest.raises(Unauthenticated):
        verify(secret, body + b"!", header, NOW)
    with pytest.raises(Unauthenticated):
        verify(secret + "!", body, header, NOW)


@pytest.mark.parametrize(
    ("header", "code"),
    [
        (None, "webhook.unsigned"),
        ("", "webhook.unsigned"),
        ("t=1,v1=zz", "webhook.unsigned"),
        ("t=99999999999999999999,v1=" + "0" * 64, "webhook.unsigned"),
        (f"t={int(NOW.timestamp())},v1=" + "0" * 64, "webhook.forged"),
        (signature(SECRET, b"x", NOW - WINDOW - timedelta(seconds=1)), "webhook.expired"),
        (signature(SECRET, b"x", NOW + WINDOW + timedelta(seconds=1)), "webhook.expired"),
    ],
)
def test_what_is_wrong_is_named(header: str | None, code: str) -> None:
    with pytest.raises(Unauthenticated) as refused:
        verify(SECRET, b"x", header, NOW)
    assert refused.value.code == code


def test_the_time_cannot_be_moved_and_a_secret_can_be_replaced() -> None:
    header = signature(SECRET, b"x", NOW - WINDOW)
    later = header.replace(f"t={int((NOW - WINDOW).timestamp())}", f"t={int(NOW.timestamp())}")
    with pytest.raises(Unauthenticated):
        verify(SECRET, b"x", later, NOW)
    both = f"{signature('former-secret', b'x', NOW)},v1={signature(SECRET, b'x', NOW).rpartition('v1=')[2]}"
    assert verify(SECRET, b"x", both, NOW)


@given(st.integers(1, MOST_ATTEMPTS + 3), st.floats(0, 1))
def test_pauses_grow_and_end(attempts: int, random: float) -> None:
    pause = next_pause(attempts, random)
    if attempts >= MOST_ATTEMPTS:
        assert pause is None
    else:
        assert pause is not None
        assert timedelta(seconds=2.5) <= pause <= timedelta(hours=1)
        assert pause <= timedelta(seconds=5 * 2 ** (attempts - 1))
    assert is_final(410)
    assert not is_final(404)
    assert not is_final(None)
