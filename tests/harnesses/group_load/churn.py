"""Groups whose members come and go, idle connections, and a producer beside them."""

import asyncio
import random
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

import psutil
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from harnesses.group_load.connection import Connection
from harnesses.group_load.holders import Holders
from harnesses.group_load.members import KINDS, Member
from support.clients import create_topic
from txn.wire.api_keys import ApiKey

MEMBERS: Final = 10
"""Of a group."""
CHANGE_EVERY_S: Final = 10.0
"""A member of each group goes and another comes, on average."""
DEATHS: Final = 0.2
"""The part of those that go without a word."""
SETTLE_S: Final = 180.0
IDLE_EVERY_S: Final = 30.0
MESSAGE_BYTES: Final = 20_000
SAMPLES: Final = 30


@dataclass(frozen=True)
class Sizes:
    """How much of everything there is."""

    connections: int
    groups: int
    topics: int
    megabytes: float
    """Produced a second."""


@dataclass
class Report:
    """One run: its problems and its costs."""

    HEADER: ClassVar[str] = (
        "members  came  partitions given  settled s   MB/s  broker CPU s  "
        "of a core  MiB at 1/3    at end"
    )

    problems: list[str]
    came: int
    taken: int
    settled_s: float
    megabytes_s: float
    cpu_s: float
    cpu_share: float
    rss_third: int
    rss_end: int
    members: int

    def row(self) -> str:
        """The figures below `HEADER`."""
        return (
            f"{self.members:7} {self.came:5} {self.taken:17} {self.settled_s:10.1f} "
            f"{self.megabytes_s:6.1f} {self.cpu_s:13.1f} {self.cpu_share:10.2f} "
            f"{self.rss_third >> 20:11} {self.rss_end >> 20:9}"
        )


class Load:
    """A load on one broker.

    Args:
        servers: Its bootstrap servers.
        protocol: Of the groups, `classic` or `consumer`.
        broker: Its process, for CPU and memory.
        sizes: How much of everything.
        seed: Of the choices.
    """

    def __init__(
        self, servers: str, protocol: str, broker: psutil.Process, sizes: Sizes, seed: int
    ) -> None:
        self._servers = servers
        self._kind = KINDS[protocol]
        self._broker = broker
        self._sizes = sizes
        self._random = random.Random(seed)
        self._holders = Holders()
        self._topics = [f"t{n}" for n in range(sizes.topics)]
        self._each = sizes.topics // sizes.groups
        self._groups: list[list[Member]] = []
        self._came = 0

    async def run(self, seconds: float) -> Report:
        """Make the topics, let members come and go for some seconds, and wait until all settle."""
        await asyncio.to_thread(_create_topics, self._servers, self._topics)
        await self._find_coordinators()
        idle_count = self._sizes.connections - MEMBERS * self._sizes.groups
        idle = [asyncio.create_task(_stay_idle(self._servers, n)) for n in range(idle_count)]
        for number in range(self._sizes.groups):
            self._groups.append([self._member(number) for _ in range(MEMBERS)])
            await asyncio.sleep(0)
        await self._settle("at the start")
        cpu_before = self._cpu_s()
        began_s = time.monotonic()
        with Feed(self._servers, self._sizes.megabytes) as feed:
            churn = [
                asyncio.create_task(self._churn(number, began_s + seconds))
                for number in range(self._sizes.groups)
            ]
            memory = await self._watch_memory(seconds)
            await asyncio.gather(*churn)
            megabytes_s = feed.megabytes / (time.monotonic() - began_s)
        took_s = time.monotonic() - began_s
        cpu_s = self._cpu_s() - cpu_before
        settled_s = await self._settle("at the end")
        memory.append(self._broker.memory_info().rss)
        for task in idle:
            task.cancel()
        ended = await asyncio.gather(*idle, return_exceptions=True)
        self._holders.problems += [
            f"an idle connection ended: {each!r}" for each in ended if isinstance(each, Exception)
        ]
        await asyncio.gather(*(one.die() for group in self._groups for one in group))
        return Report(
            problems=self._holders.problems,
            came=self._came,
            taken=self._holders.taken,
            settled_s=settled_s,
            megabytes_s=megabytes_s,
            cpu_s=cpu_s,
            cpu_share=cpu_s / took_s,
            rss_third=memory[len(memory) // 3],
            rss_end=memory[-1],
            members=MEMBERS * self._sizes.groups,
        )

    async def _find_coordinators(self) -> None:
        """Ask until each group has a coordinator: Kafka makes their topic when it is asked."""
        connection = await Connection.open(self._servers)
        keys = [f"g{number}" for number in range(self._sizes.groups)]
        asked = {"key_type": 0, "coordinator_keys": keys}
        while True:
            answer = await connection.ask(ApiKey.FIND_COORDINATOR, 4, **asked)
            if not any(found.error_code for found in answer.coordinators):
                break
            await asyncio.sleep(0.1)
        connection.close()

    def _member(self, number: int) -> Member:
        topics = self._topics[number * self._each : (number + 1) * self._each]
        self._came += 1
        return self._kind(self._servers, f"g{number}", topics, self._holders)

    def _cpu_s(self) -> float:
        times = self._broker.cpu_times()
        return times.user + times.system

    async def _watch_memory(self, seconds: float) -> list[int]:
        found = []
        for _ in range(SAMPLES):
            await asyncio.sleep(seconds / SAMPLES)
            found.append(self._broker.memory_info().rss)
        return found

    async def _churn(self, number: int, until_s: float) -> None:
        """Let one member after the other go, and another come."""
        group = self._groups[number]
        while True:
            pause_s = self._random.expovariate(1 / CHANGE_EVERY_S)
            if time.monotonic() + pause_s > until_s:
                return
            await asyncio.sleep(pause_s)
            place = self._random.randrange(MEMBERS)
            await group[place].die(is_silent=self._random.random() < DEATHS)
            group[place] = self._member(number)

    async def _settle(self, when: str) -> float:
        """Wait until every partition of every group has a holder; return the seconds."""
        began_s = time.monotonic()
        while unsettled := [group for group in self._groups if not self._is_settled(group)]:
            failed = [one.failure() for group in unsettled for one in group]
            problems = [each for each in failed if each is not None]
            if time.monotonic() > began_s + SETTLE_S:
                problems += [f"{group[0].group} is stuck {when}" for group in unsettled]
            if problems:
                self._holders.problems += problems
                break
            await asyncio.sleep(0.1)
        return time.monotonic() - began_s

    def _is_settled(self, group: Sequence[Member]) -> bool:
        held = [place for one in group for place in one.held]
        return len(held) == len({*held}) == self._each


class Feed:
    """A producer beside the groups, in a thread: so many megabytes a second to one topic."""

    def __init__(self, servers: str, megabytes_s: float) -> None:
        create_topic(servers, "feed", 4, retention_bytes=str(64 << 20))
        self.megabytes = 0.0
        self._rate = megabytes_s
        self._producer = Producer(
            {"bootstrap.servers": servers, "linger.ms": 5, "queue.buffering.max.kbytes": 65536}
        )
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Feed":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()
        self._producer.flush(30)

    def _run(self) -> None:
        value = random.Random(7).randbytes(MESSAGE_BYTES)
        began_s = time.monotonic()
        while not self._is_over.is_set():
            due = self._rate * (time.monotonic() - began_s)
            while self.megabytes < due and not self._is_over.is_set():
                try:
                    self._producer.produce("feed", value)
                except BufferError:
                    self._producer.poll(0.1)
                    continue
                self.megabytes += MESSAGE_BYTES / 1e6
            self._producer.poll(0.02)


def _create_topics(servers: str, names: Iterable[str]) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    wanted = [NewTopic(name, 1, 1) for name in names]
    for start in range(0, len(wanted), 200):
        made = admin.create_topics(wanted[start : start + 200], request_timeout=120)
        for each in made.values():
            each.result(120)


async def _stay_idle(servers: str, number: int) -> None:
    """A connection that asks for the versions now and then."""
    await asyncio.sleep(IDLE_EVERY_S * number / 10_000)
    connection = await Connection.open(servers)
    try:
        while True:
            await connection.ask(
                ApiKey.API_VERSIONS, 3, client_software_name="load", client_software_version="1"
            )
            await asyncio.sleep(IDLE_EVERY_S)
    finally:
        connection.close()
