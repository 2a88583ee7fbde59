"""`python -m hetuflow_selftest.proxy FOLDER ADDRESS`: orders come in as JSON lines, answers go out so."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from hetuflow_selftest.history import PROXY, History
from hetuflow_selftest.proxy.link import Link, LinkFault


async def serve(folder: Path, address: str) -> None:
    history = History(folder, PROXY)
    links: dict[str, Link] = {}
    loop = asyncio.get_running_loop()
    orders = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    while line := await orders.readline():
        order = json.loads(line)
        answer: dict[str, object] = {}
        if order["do"] == "open":
            link = Link(
                order["link"], [tuple(target) for target in order["targets"]], history, http=order["http"]
            )
            answer["port"] = await link.open(address)
            links[link.name] = link
        elif order["do"] == "fault":
            links[order["link"]].suffer(
                LinkFault(**{**order["fault"], "paths": tuple(order["fault"].get("paths", ()))})
            )
        elif order["do"] == "shed":
            links[order["link"]].shed()
        else:
            answer["felt"] = links[order["link"]].heal()
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    history.close()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), sys.argv[2]))
