"""The names under which instances are counted while they are reserved or running.

    tool:claude             a named limit, defined by people and named by any number of jobs
    job:<id>                a job's own `concurrency.max`
    key:<job id>:<digest>   one value of a job's `concurrency.key`

The first two belong to the placement class: a claim passes over a class without room. A key belongs to the
instance, and instances whose key is taken are held.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Final, NamedTuple
from uuid import UUID

JOB_KIND: Final = "job"
KEY_KIND: Final = "key"
# Not for people to name limits with.
OWN_KINDS: Final = frozenset({JOB_KIND, KEY_KIND})
MOST_CONCURRENT: Final = 1_000_000
# What a job's own limit becomes when the job gives it up: work that counts against it may still be there.
UNLIMITED: Final = 2**31 - 1


class Scope(NamedTuple):
    """One thing that is counted; names are those of a namespace."""

    namespace_id: int
    name: str


def job_scope(job_id: UUID) -> str:
    return f"{JOB_KIND}:{job_id}"


def key_scope(job_id: UUID, key: str) -> str:
    """The scope of one value of a job's key; values may be long, so only their digest is kept."""
    digest = blake2b(key.encode(errors="surrogatepass"), digest_size=16, person=b"hetuflow-key-1")
    return f"{key_scopes(job_id)}{digest.hexdigest()}"


def key_scopes(job_id: UUID) -> str:
    """What the scopes of all values of a job's key begin with."""
    return f"{KEY_KIND}:{job_id}:"


def kind_of(name: str) -> str:
    """What a scope counts: `job`, `key`, or whatever people have put before the colon of a named limit."""
    return name.partition(":")[0]


def room(scopes: Iterable[Scope], free: Mapping[Scope, int]) -> int | None:
    """How many more may be taken under all of these scopes together; None: any number."""
    return min((max(0, free[scope]) for scope in scopes if scope in free), default=None)


def admit(wanted: Sequence[Sequence[Scope]], taken: Mapping[Scope, int]) -> tuple[list[bool], Counter[Scope]]:
    """Which rows of a batch go, in order, when each needs one of all of its scopes.

    `taken` is what was got of each scope for the batch as a whole; what of it is not used is returned.
    """
    left = Counter(dict(taken))
    admitted = []
    for scopes in wanted:
        fits = all(left[scope] > 0 for scope in scopes)
        admitted.append(fits)
        if fits:
            left.subtract(scopes)
    return admitted, +left
