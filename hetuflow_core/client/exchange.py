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
from http import HTTPStatus
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Request(msgspec.Struct, frozen=True):
    method: str
    # Below /api/v1.
    path: str
    query: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    # Whether sending it twice does no more than sending it once.
    repeatable: bool = False


class Answer(msgspec.Struct, frozen=True):
    # The server's address, for messages.
    url: str
    status: int
    headers: Mapping[str, str]
    body: bytes = b""
    # Whether the request carried a key.
    with_key: bool = True
    # What the transport reads on from after Open.
    chunks: Any = None

    @property
    def good(self) -> bool:
        return HTTPStatus.OK <= self.status < HTTPStatus.MULTIPLE_CHOICES


class NoAnswer(msgspec.Struct, frozen=True):
    """The server could not be asked, or went away before its answer was complete."""

    url: str
    reason: str
    # A server that takes longer than we wait will hardly be faster when it is asked once more.
    timed_out: bool = False


class Send(msgspec.Struct, frozen=True):
    request: Request


class Open(msgspec.Struct, frozen=True):
    request: Request


class Read(msgspec.Struct, frozen=True):
    answer: Answer


class Pause(msgspec.Struct, frozen=True):
    least: float
    spread: float = 0.0


class Now(msgspec.Struct, frozen=True):
    pass


class Emit(msgspec.Struct, Generic[T_co], frozen=True):
    item: T_co


Need: TypeAlias = Send | Open | Read | Pause | Now
Plan: TypeAlias = Generator[Need, Any, T]
Stream: TypeAlias = Generator[Need | Emit[T], Any, None]
