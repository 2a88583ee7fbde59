"""A bucket never gives more than its rate and its burst allow."""

from __future__ import annotations

from hypothesis import given, strategies as st

from hetuflow_server.identity.request_rates import TokenBucket, take


def test_a_full_bucket_gives_its_burst_and_then_its_rate() -> None:
    bucket: TokenBucket | None = None
    waits = []
    for _ in range(4):
        bucket, wait = take(bucket, 100.0, rate=2, burst=3)
        waits.append(wait)
    assert waits == [0, 0, 0, 0.5]
    bucket, wait = take(bucket, 100.5, rate=2, burst=3)
    assert wait == 0
    _, wait = take(bucket, 1000.0, rate=2, burst=3)
    assert wait == 0


@given(st.lists(st.floats(0, 2), max_size=60), st.floats(0.5, 20), st.integers(1, 10))
def test_what_is_given_is_bounded(pauses: list[float], rate: float, burst: int) -> None:
    bucket, now, given_out = None, 0.0, 0
    for pause in pauses:
        now += pause
        bucket, wait = take(bucket, now, rate=rate, burst=burst)
        given_out += wait == 0
        assert bucket.tokens >= 0
        if wait:
            _, again = take(bucket, now + wait + 1e-6, rate=rate, burst=burst)
            assert again == 0
    assert given_out <= burst + rate * now + 1e-6
