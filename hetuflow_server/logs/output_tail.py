"""The end of what an instance wrote, for the rules that look at it."""

from __future__ import annotations

from uuid import UUID

import zstandard

from hetuflow_core.retry import LONGEST_TEXT
from hetuflow_server.logs import store
from hetuflow_server.postgres.database import Connection


async def output_tail(connection: Connection, instance_id: UUID, claim_no: int) -> str:
    """Return the last bytes that arrived of both streams, each stream by itself so that no lines mix."""
    streams: dict[str, list[bytes]] = {"stdout": [], "stderr": []}
    left = LONGEST_TEXT
    decompressor = zstandard.ZstdDecompressor()
    for chunk in reversed(await store.read_tail(connection, instance_id, claim_no, LONGEST_TEXT)):
        text = decompressor.decompress(chunk.data, max_output_size=chunk.byte_length)[-left:]
        left -= len(text)
        streams[chunk.position.stream].append(text)
        if not left:
            break
    texts = (b"".join(reversed(pieces)) for pieces in streams.values() if pieces)
    return "\n".join(text.decode("utf-8", "replace") for text in texts)
