"""What the client says and hears, apart from how it travels.

Every operation is written once, as a plan: a generator that yields what it needs from the outside world and
is sent the outcome. `Hetuflow` carries plans out with blocking calls, `AsyncHetuflow` with awaited ones, and
a test by hand.

    yielded                 sent back
    Send(request)           Answer, or NoAnswer
    Open(request)           Answer whose body is still to be read when it is a good one, or NoAnswer
    Read(answer)            bytes, None at the end, or NoAnswer
    Pause(least, spread)    None, `least` seconds later and up to `spread` more, drawn at random
    Now()                   seconds on a clock that never runs backwards
    Emit(item)              None; the next item of what the caller iterates over
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Generic, TypeAlias, TypeVar

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    # Below /api/v1.
    path: str
    query: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    # Whether sending it twice does no more than sending it once.
    repeatable: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    # The server's address, for messages.
    url: str
    status: int
    headers: Mapping[str, str]
    body: bytes = b""
    # Whether the request carried a key.
    with_key: bool = True
    # What the transport reads on from after Open.
    chunks: Any = field(default=None, repr=False)

    @property
    def good(self) -> bool:
        return HTTPStatus.OK <= self.status < HTTPStatus.MULTIPLE_CHOICES


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """The server could not be asked, or went away before its answer was complete."""

    url: str
    reason: str
    # A server that takes longer than we wait will hardly be faster when it is asked once more.
    timed_out: bool = False


@dataclass(frozen=True, slots=True)
class Send:
    request: Request


@dataclass(frozen=True, slots=True)
class Open:
    request: Request


@dataclass(frozen=True, slots=True)
class Read:
    answer: Answer


@dataclass(frozen=True, slots=True)
class Pause:
    least: float
    spread: float = 0.0


@dataclass(frozen=True, slots=True)
class Now:
    pass


@dataclass(frozen=True, slots=True)
class Emit(Generic[T_co]):
    item: T_co


Need: TypeAlias = Send | Open | Read | Pause | Now
Plan: TypeAlias = Generator[Need, Any, T]
Stream: TypeAlias = Generator[Need | Emit[T], Any, None]
