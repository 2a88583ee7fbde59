"""Signatures of messages: whatever differs, and whatever is too old, is refused."""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import assume, given, strategies as st
from standardwebhooks import Webhook

from hetuflow_core.errors import Invalid, Unauthenticated
from hetuflow_server.webhooks.redelivery_delays import MOST_ATTEMPTS, is_final, next_pause
from hetuflow_server.webhooks.signatures import (
    FORMER,
    ID as ID_HEADER,
    SIGNATURE,
    TIMESTAMP,
    WINDOW,
    sign,
    verify,
)

NOW = datetime(2026, 7, 1, 12, tzinfo=UTC)
SECRET = "hunter22-of-hooks"


ID = "msg_1"


def headers(body: str = "x", secret: str = SECRET, at: datetime = NOW) -> dict[str, str]:
    return sign(secret, ID, body, at)


def former(body: str = "x", secret: str = SECRET, at: datetime = NOW) -> dict[str, str]:
    return {FORMER: headers(body, secret, at)[FORMER]}


@pytest.mark.parametrize("headers_of", [headers, former])
@given(body=st.text(max_size=50), secret=st.text(min_size=4, max_size=20))
def test_a_signed_message_is_verified_and_a_changed_one_refused(
    headers_of: Callable[..., dict[str, str]], body: str, secret: str
) -> None:
    assume(not secret.startswith("whsec_"))
    signed = headers_of(body, secret)
    assert verify(secret, body.encode(), signed, NOW + timedelta(minutes=4)).key
    with pytest.raises(Unauthenticated):
        verify(secret, body.encode() + b"!", signed, NOW)
    with pytest.raises(Unauthenticated):
        verify(secret + "!", body.encode(), signed, NOW)


def test_the_published_example_of_the_specification_is_verified() -> None:
    """The values that the specification's own libraries test with."""
    secret, at = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", datetime.fromtimestamp(1614265330, UTC)
    body = '{"test": 2432232314}'
    signed = sign(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", body, at)
    assert signed[SIGNATURE] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    assert verify(secret, body.encode(), signed, at).has_id


@given(st.text(max_size=50), st.binary(min_size=1, max_size=40))
def test_the_library_of_the_specification_verifies_our_messages(body: str, key: bytes) -> None:
    secret = "whsec_" + base64.b64encode(key).decode()
    now = datetime.now(UTC)
    Webhook(secret).verify(body, sign(secret, ID, body, now), json_parse=False)


def test_a_secret_without_prefix_is_used_as_text() -> None:
    now = datetime.now(UTC)
    Webhook(SECRET.encode()).verify("x", headers(at=now), json_parse=False)
    assert headers(secret="whsec_aHVudGVy")[SIGNATURE] == headers(secret="hunter")[SIGNATURE]


def test_a_secret_that_announces_base64_and_is_not_signs_nothing() -> None:
    with pytest.raises(Invalid) as refused:
        sign("whsec_?", ID, "x", NOW)
    assert refused.value.code == "webhook.secret_malformed"
    with pytest.raises(Unauthenticated) as hidden:
        verify("whsec_?", b"x", headers(), NOW)
    assert hidden.value.code == "webhook.forged"


@pytest.mark.parametrize(
    ("given_headers", "code"),
    [
        ({}, "webhook.unsigned"),
        ({FORMER: ""}, "webhook.unsigned"),
        ({FORMER: "t=1,v1=zz"}, "webhook.unsigned"),
        ({FORMER: "t=99999999999999999999,v1=" + "0" * 64}, "webhook.unsigned"),
        ({FORMER: f"t={int(NOW.timestamp())},v1=" + "0" * 64}, "webhook.forged"),
        (former(at=NOW - WINDOW - timedelta(seconds=1)), "webhook.expired"),
        (former(at=NOW + WINDOW + timedelta(seconds=1)), "webhook.expired"),
        (headers(at=NOW - WINDOW - timedelta(seconds=1)), "webhook.expired"),
        (headers(at=NOW + WINDOW + timedelta(seconds=1)), "webhook.expired"),
        ({SIGNATURE: headers()[SIGNATURE]}, "webhook.unsigned"),
        ({**headers(), SIGNATURE: "v1"}, "webhook.unsigned"),
        ({**headers(), SIGNATURE: "v1,é"}, "webhook.unsigned"),
        ({**headers(), SIGNATURE: "v1,AAAA"}, "webhook.forged"),
        ({**headers(), SIGNATURE: headers()[SIGNATURE].replace("v1,", "v2,")}, "webhook.forged"),
        ({**headers(), ID_HEADER: "msg_2"}, "webhook.forged"),
        ({**headers(), ID_HEADER: "a.b"}, "webhook.unsigned"),
        ({**headers(), TIMESTAMP: "now"}, "webhook.unsigned"),
        ({**headers(), TIMESTAMP: str(int(NOW.timestamp()) + 1)}, "webhook.forged"),
    ],
)
def test_the_error_names_what_is_wrong(given_headers: dict[str, str], code: str) -> None:
    with pytest.raises(Unauthenticated) as refused:
        verify(SECRET, b"x", given_headers, NOW)
    assert refused.value.code == code


def test_a_body_that_is_not_text_is_refused_like_a_forged_one() -> None:
    with pytest.raises(Unauthenticated) as refused:
        verify(SECRET, b"\xff", headers(), NOW)
    assert refused.value.code == "webhook.forged"


def test_a_secret_can_be_replaced_with_two_signatures() -> None:
    standard = {
        **headers(),
        SIGNATURE: f"{headers(secret='former-secret')[SIGNATURE]} {headers()[SIGNATURE]}",
    }
    assert verify(SECRET, b"x", standard, NOW).has_id
    both = f"{former(secret='former-secret')[FORMER]},v1={former()[FORMER].rpartition('v1=')[2]}"
    assert not verify(SECRET, b"x", {FORMER: both}, NOW).has_id


def test_a_repeated_id_has_the_same_key_whatever_its_time() -> None:
    later = NOW + timedelta(hours=1)
    assert verify(SECRET, b"x", headers(), NOW) == verify(SECRET, b"x", headers(at=later), later)


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
