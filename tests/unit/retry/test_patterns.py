"""Patterns mean what they mean to `re`, and no pattern takes long."""

from __future__ import annotations

import re
from time import process_time

import pytest
from hypothesis import given, settings, strategies as st

from hetuflow_core.errors import Invalid
from hetuflow_core.retry import LONGEST_TEXT, check_pattern, found_in

characters = st.sampled_from(
    ["a", "b", "A", "0", "é", ".", r"\d", r"\w", r"\s", r"\.", "[ab]", "[^a]", "[a-c0]", "]"]
)
quantifiers = st.sampled_from(["*", "+", "?", "{2}", "{1,}", "{,2}", "{0,3}", "*?", "+?", "{0}"])
patterns = st.recursive(
    characters | st.sampled_from(["^a", "b$", "^", "$"]),
    lambda inner: (
        st.lists(inner, max_size=3).map("".join)
        | st.lists(inner, min_size=1, max_size=3).map(lambda options: f"({'|'.join(options)})")
        | st.tuples(inner, quantifiers).map(lambda pair: f"(?:{pair[0]}){pair[1]}")
    ),
    max_leaves=8,
)
texts = st.text("abA0é. ]\n", max_size=12)


@settings(deadline=None, max_examples=1000)
@given(patterns, texts, st.booleans())
def test_a_pattern_is_found_where_re_finds_it_in_a_line(pattern: str, text: str, ignore_case: bool) -> None:
    pattern = f"(?i){pattern}" if ignore_case else pattern
    try:
        check_pattern(pattern)
    except Invalid:
        return
    if "$" in pattern and "^" in pattern[pattern.index("$") :]:
        return  # an end before a start: `re` finds it in empty lines
    expected = any(re.search(pattern, line) for line in text.split("\n"))
    assert found_in(pattern, text) == expected


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        ("rate limit", "x\nHTTP 429: rate limit exceeded\n", True),
        ("rate limit", "Rate Limit", False),
        ("(?i)rate limit", "Rate Limit", True),
        (r"^Killed$", "starting\nKilled\n", True),
        (r"^Killed$", "starting\r\nKilled\r\n", True),
        (r"^Killed$", "Killed by nobody", False),
        (r"^$", "a\n\nb", True),
        (r"^^a$$", "a", True),
        (r"error.*time(out|d out)", "error: the call timed out", True),
        (r"error.*timeout", "error\ntimeout", False),
        (r"exit (1|2)\d{2,3}", "exit 1999", True),
        (r"exit (1|2)\d{2,3}$", "exit 19", False),
        (r"[]x]", "]", True),
        (r"[^]x]", "]x", False),
        (r"\[ERROR\]", "[ERROR] no space left", True),
        (r"a\tb", "a\tb", True),
        (r"\\", "a\\b", True),
        (r"ab{0}c", "ac", True),
        ("é+", "cafééé", True),
    ],
)
def test_examples(pattern: str, text: str, found: bool) -> None:
    assert found_in(pattern, text) is found


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("", "is empty"),
        ("x" * 201, "longer than 200 characters"),
        ("a\nb", "one line at a time"),
        ("a*", "matches every output"),
        ("(a|)", "matches every output"),
        ("()", "matches every output"),
        ("(a", "is not closed"),
        ("a)", 'an unmatched ")"'),
        ("[a", "is not closed"),
        ("[]", "is invalid"),
        ("[b-a]", "is invalid"),
        ("[[:alpha:]]", 'contains a "["'),
        ("[a--b]", "doubled sign"),
        ("*a", 'the pattern has nothing before "*"'),
        ("(?:+)", 'the pattern has nothing before "+"'),
        ("a**", "repeats a repetition"),
        ("a++", "repeats a repetition"),
        ("a{2}{3}", "repeats a repetition"),
        ("^*a", "repeats ^ or $"),
        ("a{x}", "has no number of repetitions"),
        ("a{,}", "has no number of repetitions"),
        ("a{3,2}", "must be ascending"),
        ("a{101}", "at most 100"),
        ("(a{20}){20}", "too large"),
        ("((((){99}){99}){99}){99}a", "too large"),
        ("(" * 21 + "a" + ")" * 21, "more than 20 nested groups"),
        ("(?=a)b", "not supported: use (…)"),
        ("(?P<n>a)", "not supported: use (…)"),
        ("a(?i)", "not supported: use (…)"),
        (r"(a)\1", r'"\1" is not supported'),
        (r"\bword", r'"\b" is not supported'),
        (r"[\x41]", r'"\x" is not supported'),
        ("a\\", "ends with a backslash"),
    ],
)
def test_what_is_no_pattern_is_refused_with_a_remedy(pattern: str, message: str) -> None:
    with pytest.raises(Invalid, match=re.escape(message)) as raised:
        check_pattern(pattern)
    assert raised.value.message.endswith(".")


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("(a+)+b", "a" * 100_000),
        ("(a|a)*b", "a" * 100_000),
        ("(a|aa)+$", "a" * 100_000 + "b"),
        (".*.*.*.*.*.*.*x", "a" * 100_000),
        ("(.*a){12}", "a" * 100_000 + "\n"),
        ("(a?){60}a{60}b", "a" * 100_000),
        (
            "([^x]|[^y]|[^z]|[^v])*[w][^x][^y][^z]{80}",
            "".join(map(chr, range(0x4E00, 0x4E00 + LONGEST_TEXT))),
        ),
    ],
)
def test_patterns_that_take_others_years_take_less_than_a_second(pattern: str, text: str) -> None:
    check_pattern(pattern)
    begin = process_time()
    found_in(pattern, text)
    # The work is bounded by text times positions; the bound here is far above that, for slow machines.
    assert process_time() - begin < 2


def test_only_the_end_of_a_long_output_is_looked_at() -> None:
    assert not found_in("needle", "needle" + " " * LONGEST_TEXT)
    assert found_in("needle", " " * (2 * LONGEST_TEXT) + "needle")
