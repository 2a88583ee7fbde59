"""Binding namespaces to servers: even, still, obedient to pins, and always the same answer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from uuid import UUID

from hypothesis import given, strategies as st

from hetuflow_server.cluster.balance import TOLERANCE, Namespace, balance


def server(n: int) -> UUID:
    return UUID(int=n)


def settled(namespaces: Sequence[Namespace], where: Mapping[int, UUID]) -> list[Namespace]:
    """The same namespaces, each on the server it was given."""
    return [replace(one, server=where[one.id]) for one in namespaces]


def moved(before: Sequence[Namespace], after: Mapping[int, UUID]) -> list[Namespace]:
    return [one for one in before if one.server != after[one.id]]


def pressures(
    namespaces: Sequence[Namespace], where: Mapping[int, UUID], weights: Mapping[UUID, float]
) -> dict[UUID, float]:
    load: defaultdict[UUID, float] = defaultdict(float)
    for one in namespaces:
        load[where[one.id]] += one.burden
    return {id_: load[id_] / weight for id_, weight in weights.items()}


def alike(count: int) -> list[Namespace]:
    return [Namespace(id_, 1.0) for id_ in range(1, count + 1)]


burdens = st.floats(0.01, 100, allow_nan=False)
weights_of_servers = (
    st.integers(1, 8)
    .flatmap(lambda count: st.lists(st.integers(1, 300), min_size=count, max_size=count))
    .map(lambda weights: {server(n): float(weight) for n, weight in enumerate(weights, start=1)})
)


@st.composite
def situations(draw: st.DrawFn) -> tuple[list[Namespace], dict[UUID, float]]:
    servers = draw(weights_of_servers)
    # Some of them are on servers that are gone, some on none.
    places = st.sampled_from([*servers, server(98), server(99), None])
    pins = st.sampled_from(
        [frozenset(), frozenset(), frozenset(), frozenset({server(99)}), *map(_only, servers)]
    )
    namespaces = [
        Namespace(id_, draw(burdens), draw(places), draw(pins))
        for id_ in range(1, draw(st.integers(0, 25)) + 1)
    ]
    return namespaces, servers


def _only(one: UUID) -> frozenset[UUID]:
    return frozenset({one})


@given(situations())
def test_every_namespace_gets_a_server_that_lives(
    situation: tuple[list[Namespace], dict[UUID, float]],
) -> None:
    namespaces, servers = situation
    where = balance(namespaces, servers)
    assert where.keys() == {one.id for one in namespaces}
    assert set(where.values()) <= servers.keys()


@given(situations())
def test_pins_are_obeyed_while_their_server_lives(
    situation: tuple[list[Namespace], dict[UUID, float]],
) -> None:
    namespaces, servers = situation
    where = balance(namespaces, servers)
    for one in namespaces:
        if living := one.pinned_to & servers.keys():
            assert where[one.id] in living


@given(situations())
def test_no_two_servers_are_further_apart_than_the_heaviest_namespace(
    situation: tuple[list[Namespace], dict[UUID, float]],
) -> None:
    namespaces, servers = situation
    free = [replace(one, pinned_to=frozenset()) for one in namespaces]
    where = balance(free, servers)
    pressure = pressures(free, where, servers)
    lightest = min(servers, key=lambda id_: (pressure[id_], id_))
    mean = sum(one.burden for one in free) / sum(servers.values())
    heaviest = max((one.burden for one in free), default=0.0)
    spread = max(pressure.values()) - pressure[lightest]
    assert spread <= max(TOLERANCE * mean, heaviest / servers[lightest]) + 1e-6


@given(situations())
def test_what_was_decided_stays_decided(situation: tuple[list[Namespace], dict[UUID, float]]) -> None:
    namespaces, servers = situation
    where = balance(namespaces, servers)
    assert balance(settled(namespaces, where), servers) == where


@given(situations(), st.randoms(use_true_random=False))
def test_the_order_in_which_things_are_told_makes_no_difference(
    situation: tuple[list[Namespace], dict[UUID, float]], rng: st.DataObject
) -> None:
    namespaces, servers = situation
    shuffled, others = list(namespaces), list(servers.items())
    rng.shuffle(shuffled)  # type: ignore[attr-defined] # hypothesis gives a random.Random
    rng.shuffle(others)  # type: ignore[attr-defined] # as above
    assert balance(shuffled, dict(others)) == balance(namespaces, servers)


@given(st.integers(1, 12), st.integers(0, 120))
def test_a_server_that_joins_takes_its_share_and_nothing_else_moves(count: int, amount: int) -> None:
    servers = {server(n): 1.0 for n in range(1, count + 1)}
    namespaces = settled(alike(amount), balance(alike(amount), servers))
    where = balance(namespaces, servers | {server(99): 1.0})
    gone = moved(namespaces, where)
    assert {where[one.id] for one in gone} <= {server(99)}
    assert len(gone) <= amount // (count + 1) + 1
    assert len(gone) >= amount // (count + 1) - count * TOLERANCE * amount / count


@given(st.integers(2, 12), st.integers(0, 120))
def test_a_server_that_leaves_moves_its_own_namespaces_alone(count: int, amount: int) -> None:
    servers = {server(n): 1.0 for n in range(1, count + 1)}
    namespaces = settled(alike(amount), balance(alike(amount), servers))
    del servers[server(1)]
    where = balance(namespaces, servers)
    assert {one.id for one in moved(namespaces, where)} == {
        one.id for one in namespaces if one.server == server(1)
    }


def test_twelve_namespaces_on_three_servers_and_then_on_four() -> None:
    three = {server(n): 100.0 for n in (1, 2, 3)}
    namespaces = settled(alike(12), balance(alike(12), three))
    assert set(pressures(namespaces, balance(namespaces, three), three).values()) == {4 / 100}
    where = balance(namespaces, three | {server(4): 100.0})
    assert len(moved(namespaces, where)) == 3
    assert {where[one.id] for one in moved(namespaces, where)} == {server(4)}


def test_a_server_of_twice_the_weight_gets_twice_as_much() -> None:
    servers = {server(1): 100.0, server(2): 200.0}
    where = balance(alike(30), servers)
    assert sorted(where.values()).count(server(2)) == 20


def test_a_server_of_weight_nought_gets_what_is_pinned_to_it_and_all_if_it_is_alone() -> None:
    idle, busy = server(1), server(2)
    pinned = Namespace(1, 1.0, pinned_to=frozenset({idle}))
    where = balance([pinned, *alike(5)[1:]], {idle: 0.0, busy: 100.0})
    assert [id_ for id_, owner in where.items() if owner == idle] == [1]
    assert set(balance(alike(5), {idle: 0.0}).values()) == {idle}


def test_a_pin_to_a_server_that_is_gone_binds_nothing() -> None:
    pinned = Namespace(1, 1.0, server(9), frozenset({server(9)}))
    assert balance([pinned], {server(1): 1.0}) == {1: server(1)}


def test_a_little_more_load_moves_nothing_and_a_lot_does() -> None:
    servers = {server(1): 1.0, server(2): 1.0}
    where = balance(alike(20), servers)
    namespaces = settled(alike(20), where)
    mine = [one.id for one in namespaces if one.server == server(1)]
    busier = [replace(one, burden=1.15) if one.id in mine else one for one in namespaces]
    assert not moved(busier, balance(busier, servers))
    far_busier = [replace(one, burden=2.0) if one.id in mine else one for one in namespaces]
    assert moved(far_busier, balance(far_busier, servers))
    assert not moved(far_busier, balance(far_busier, servers, even_out=False))


def test_without_servers_nothing_can_be_bound() -> None:
    assert balance(alike(3), {}) == {}
