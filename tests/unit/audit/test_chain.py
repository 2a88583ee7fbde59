"""The chain of the audit trail: whatever is changed, removed or moved shows, and where."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from hypothesis import given, settings, strategies as st

from hetuflow_core.audit_chain import START, Break, Link, Seal, digest_of, sealed, walked

CONTENTS = st.lists(
    st.dictionaries(st.sampled_from("abcd"), st.integers() | st.text(max_size=5) | st.none()),
    min_size=1,
    max_size=8,
)


def chain_of(contents: list[dict[str, Any]]) -> list[Link]:
    links, last = [], START
    for content in contents:
        last = sealed(last, content)
        links.append(Link(last, content))
    return links


@given(CONTENTS)
def test_a_whole_chain_ends_with_its_last_link(contents: list[dict[str, Any]]) -> None:
    links = chain_of(contents)
    assert walked(START, links) == links[-1].seal
    # An expired link is followed by its hash, and a chain can be taken up anywhere.
    expired = [Link(links[0].seal, None), *links[1:]]
    assert walked(START, expired) == links[-1].seal
    assert walked(links[0].seal, links[1:]) == links[-1].seal


@given(CONTENTS, st.data())
@settings(max_examples=200)
def test_what_was_tampered_with_is_named(contents: list[dict[str, Any]], data: st.DataObject) -> None:
    links = chain_of(contents)
    place = data.draw(st.integers(0, len(links) - 1))
    edited = [*links[:place], Link(links[place].seal, {**contents[place], "e": 1}), *links[place + 1 :]]
    assert walked(START, edited) == Break(place + 1, "differs from the sealed entry")
    if place < len(links) - 1:
        assert walked(START, links[:place] + links[place + 1 :]) == Break(place + 1, "is missing")
        other = Link(Seal(place + 1, b"x" * 32), None)
        broken = walked(START, [*links[:place], other, *links[place + 1 :]])
        assert broken == Break(place + 2, "differs from the sealed entry")


def test_a_seal_covers_types_that_come_from_a_database() -> None:
    at = datetime(2026, 7, 1, 12, tzinfo=UTC)
    content = {"at": at, "id": UUID(int=1), "before": b"\1", "detail": {"b": [1, None], "a": True}}
    assert sealed(START, content) == sealed(START, dict(reversed(content.items())))
    assert sealed(START, content) != sealed(START, {**content, "detail": {"b": [1], "a": True}})
    assert sealed(START, content).hash != sealed(Seal(1, START.hash), content).hash


def test_digests_tell_states_apart() -> None:
    assert digest_of(None) is None
    assert digest_of({"a": 1, "b": 2}) == digest_of({"b": 2, "a": 1}) != digest_of({"a": 1})
