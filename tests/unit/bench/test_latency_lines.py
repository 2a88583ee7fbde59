"""A 99th percentile is told only when there are samples enough to have one."""

from __future__ import annotations

from bench.figures.start_latency import latency_lines


def rounds(count: int) -> list[dict[str, list[float]]]:
    """Three repetitions in which one value in each is far off."""
    ours = [0.002] * (count - 1) + [1.0]
    return [{"ours": ours, "bare": [0.001] * count} for _ in range(3)]


def test_p99_is_of_all_repetitions_together() -> None:
    median, tail = latency_lines(rounds(150), "ours", "bare")
    assert (median.what, list(median.values)) == ("ours, p50", [2.0, 2.0, 2.0])
    # The worst of each repetition is 1 s; three in 450 are less than one in a hundred.
    assert (tail.what, list(tail.values)) == ("ours, p99", [2.0])
    assert tail.ratio is not None
    assert tail.ratio.median == 2.0


def test_too_few_samples_have_no_p99() -> None:
    assert [line.what for line in latency_lines(rounds(66), "ours", "bare")] == ["ours, p50"]
    assert len(list(latency_lines(rounds(67), "ours", "bare"))) == 2
