"""The scopes under which reserved and running instances are counted.

    tool:claude             a named limit, defined by users and referenced by any number of jobs
    job:<id>                the `concurrency.max` of a job
    key:<job id>:<digest>   one value of a job's `concurrency.key`

The first two belong to the placement class: a claim skips a class whose limit is reached. A key belongs to
the instance; instances whose key is in use are held.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Final, NamedTuple
from uuid import UUID

JOB_KIND: Final = "job"
KEY_KIND: Final = "key"
# Reserved prefixes: users cannot define limits with these.
OWN_KINDS: Final = frozenset({JOB_KIND, KEY_KIND})
MOST_CONCURRENT: Final = 1_000_000
# Value of a job's limit after the job removed it: instances may still count against the limit.
UNLIMITED: Final = 2**31 - 1


class Scope(NamedTuple):
    """A counter; its name is unique within the namespace."""

    namespace_id: int
    name: str


def job_scope(job_id: UUID) -> str:
    return f"{JOB_KIND}:{job_id}"


def key_scope(job_id: UUID, key: str) -> str:
    """Return the scope of one value of a job's key; it contains a digest because values may be long."""
    digest = blake2b(key.encode(errors="surrogatepass"), digest_size=16, person=b"hetuflow-key-1")
    return f"{key_scopes(job_id)}{digest.hexdigest()}"


def key_scopes(job_id: UUID) -> str:
    """Return the common prefix of the scopes of all values of a job's key."""
    return f"{KEY_KIND}:{job_id}:"


def kind_of(name: str) -> str:
    """Return the kind of a scope: `job`, `key`, or the prefix of a named limit before the colon."""
    return name.partition(":")[0]


def room(scopes: Iterable[Scope], free: Mapping[Scope, int]) -> int | None:
    """Return how many more instances fit all of these scopes; None means unlimited."""
    return min((max(0, free[scope]) for scope in scopes if scope in free), default=None)


def admit(
    batch: Sequence[Sequence[Scope]], acquired: Mapping[Scope, int]
) -> tuple[list[bool], Counter[Scope]]:
    """Decide, in order, which rows of a batch are admitted; each row needs one unit of each of its scopes.

    `acquired` are the units of each scope acquired for the whole batch; the unused units are returned.
    """
    left = Counter(dict(acquired))
    admitted = []
    for scopes in batch:
        fits = all(left[scope] > 0 for scope in scopes)
        admitted.append(fits)
        if fits:
            left.subtract(scopes)
    return admitted, +left
