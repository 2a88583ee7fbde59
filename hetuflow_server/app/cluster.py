"""Cluster membership of a server: leader lease, server row, owned namespaces and handover."""

from __future__ import annotations

import asyncio
import os
import random
import socket
from collections.abc import Callable
from datetime import datetime

from hetuflow_core import __version__, ids
from hetuflow_core.runtime.timers import Timers
from hetuflow_server.cluster.balancer import Balancer
from hetuflow_server.cluster.leadership import Leadership, LeaseTimes
from hetuflow_server.cluster.leadership_store import Lease
from hetuflow_server.cluster.loop_roles import RoleLoops
from hetuflow_server.cluster.membership import Membership
from hetuflow_server.cluster.ownership import Ownership
from hetuflow_server.cluster.servers_store import ServerIdentity
from hetuflow_server.http.listening import Listener
from hetuflow_server.postgres.database import Database
from hetuflow_server.postgres.terminate_backends import BackendTerminator
from hetuflow_server.settings import ServerSettings

_LEADER_CONNECTIONS = 4
_BALANCE_EVERY_SECONDS = 0.5
_OWNED_EVERY_SECONDS = 1.0


class Cluster:
    """The cluster roles of one server. Its id is new at every start, so that a restart is a new server."""

    def __init__(
        self,
        settings: ServerSettings,
        database: Database,
        listener: Listener,
        timers: Timers,
        learn_time: Callable[[datetime], None],
    ) -> None:
        clock, leader = timers.clock, settings.leader
        id_ = ids.new_id(clock.now(), os.urandom(10))
        url = settings.database.url.reveal()
        self.leader_database = _leader_database(settings)
        self.leadership = Leadership(
            Lease(url, holder=id_, ttl=leader.ttl, clock=clock),
            self.leader_database,
            clock,
            holder=id_,
            times=LeaseTimes(leader.ttl, leader.renew_every, leader.give_up_after),
        )
        self.ownership = Ownership(database, id_)
        self.roles = RoleLoops(
            self.leadership,
            self.ownership,
            timers=timers,
            rng=random.Random(),  # noqa: S311 - spreads load, guards nothing
        )
        self.membership = Membership(
            database,
            lambda: ServerIdentity(
                id=id_,
                hostname=socket.gethostname(),
                url=settings.server.advertise_url or listener.url,
                version=__version__,
                weight=settings.server.weight,
            ),
            learn_time,
        )
        balancer = Balancer(
            database, self.leadership, BackendTerminator(database), clock, dead_after=leader.dead_after
        )
        beat = leader.heartbeat_every.total_seconds()
        owned = self.roles.server_loop("namespaces owned", self.ownership.refresh, every=_OWNED_EVERY_SECONDS)
        balancer.when_bound(owned.wake)
        heartbeat = self.roles.server_loop(
            "server heartbeat", self.membership.heartbeat, every=beat, backoff_max=beat
        )
        self.roles.duties.append(heartbeat)
        self.loops = [
            heartbeat,
            self.roles.leader_loop("balancer", balancer.run_once, every=_BALANCE_EVERY_SECONDS),
            owned,
        ]


class Handover:
    """Started last and so stopped first: other servers take over while open requests complete."""

    name = "handover"

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def start(self) -> None:
        pass

    async def stop(self) -> None:
        # The application stops these loops again later, which then has no effect.
        await asyncio.gather(*(loop.stop() for loop in self._cluster.roles.duties))
        await self._cluster.membership.leave()
        await self._cluster.leadership.stop()


def _leader_database(settings: ServerSettings) -> Database:
    """Return a pool whose sessions hold locks for at most half a lease."""
    half = settings.leader.ttl / 2
    return Database(
        settings.database.url.reveal(),
        pool_size=_LEADER_CONNECTIONS,
        connect_timeout=settings.database.connect_timeout,
        statement_timeout=half,
        idle_in_transaction=half,
        silence=half,
        application_name="hetuflow leader",
    )
