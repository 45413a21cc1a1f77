"""The story of a run: the requests that passed the proxy, as numbered lines."""

import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final

from txn.testing.faults import Fault
from txn.testing.proxy import Link, Watch
from txn.testing.wire import NAMES, Request, errors_in
from txn.wire.api_keys import ApiKey

WRITES: Final = (
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.JOIN_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.PRODUCE,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.OFFSET_COMMIT,
    ApiKey.END_TXN,
)
"""Requests that change the broker's state: the steps of a run."""

RELEVANT: Final = (
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.PRODUCE,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.OFFSET_COMMIT,
    ApiKey.END_TXN,
)
"""Requests that every story shows; others only with an error or a fault."""

USUAL: Final = ("MEMBER_ID_REQUIRED",)
"""Errors of every run. Source: KIP-394."""

FIRST_ALONE: Final = (ApiKey.FETCH,)
"""Steps of which only the first counts: how many follow depends on the time."""


@dataclass(frozen=True)
class Step:
    """The n-th request of an API in a run; in another run of the same program it comes again."""

    key: int
    number: int

    def __str__(self) -> str:
        return f"{NAMES[self.key]} {self.number}"


@dataclass
class Event:
    """A request of a run, or a comment of the story between two requests."""

    label: str
    request: Request | None = None
    errors: Sequence[str] = ()
    remark: str = ""
    text: str = ""

    @property
    def is_relevant(self) -> bool:
        """True if a short story needs it."""
        if self.request is None:
            return True
        return bool(self.remark or self.errors) or self.request.key in RELEVANT

    def line(self) -> str:
        """The line of a story."""
        if self.request is None:
            return self.text
        line = f"   {self.request.describe()}"
        if self.errors:
            line += f" → {', '.join(self.errors)}"
        return f"{line}   ← {self.remark}" if self.remark else line


@dataclass
class Story(Watch):
    """Notes the requests of one run and its restarts."""

    events: list[Event] = field(default_factory=list)
    last_write_s: float = 0.0
    """`time.monotonic` of the newest request that changes state, or its answer."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _open: dict[int, Event] = field(default_factory=dict)

    def on_request(self, link: Link, request: Request) -> None:
        """Note a request."""
        event = Event(link.label, request)
        with self._lock:
            self._open[id(request)] = event
            self.events.append(event)
            if request.key in WRITES:
                self.last_write_s = time.monotonic()

    def on_answer(self, link: Link, request: Request, answer: bytes) -> None:
        """Note an answer's errors."""
        with self._lock:
            event = self._open.pop(id(request), None)
            if request.key in WRITES:
                self.last_write_s = time.monotonic()
        if event is not None:
            event.errors = [each for each in errors_in(request, answer) if each not in USUAL]

    def on_fault(self, link: Link, request: Request, fault: Fault) -> None:
        """Remarks come from the one who asked for the fault."""

    def add_line(self, text: str) -> None:
        """Add a line of the teller."""
        with self._lock:
            self.events.append(Event("", text=text))

    def remark(self, request: Request | None, text: str) -> None:
        """Add a remark to the line of a request."""
        with self._lock:
            for event in self.events:
                if event.request is request and request is not None:
                    event.remark = text

    def count_errors(self, name: str) -> int:
        """Number of answers with an error."""
        with self._lock:
            return sum(name in event.errors for event in self.events)

    def steps(self) -> list[Step]:
        """The steps of the run, in order."""
        counts: dict[int, int] = {}
        found = []
        for event in self.events:
            key = -1 if event.request is None else event.request.key
            if key in WRITES or (key in FIRST_ALONE and key not in counts):
                counts[key] = counts.get(key, 0) + 1
                found.append(Step(key, counts[key]))
        return found

    def named(self, name: str, before: Request | None = None) -> str | None:
        """The newest `transactional_id` or `group_id` that a request named."""
        found: str | None = None
        for event in self.events:
            if event.request is not None:
                found = getattr(event.request, name) or found
            if before is not None and event.request is before:
                break
        return found

    def timeout_ms(self, default: int) -> int:
        """The transaction timeout that the newest InitProducerId asked for."""
        for event in reversed(self.events):
            if event.request is not None and event.request.key == ApiKey.INIT_PRODUCER_ID:
                asked = getattr(event.request.fields, "transaction_timeout", None)
                return default if asked is None else round(asked.total_seconds() * 1000)
        return default

    def lines(self) -> list[str]:
        """The story, numbered; lines that repeat are one."""
        return [f"{number:3}. {line}" for number, line in enumerate(self._lines(), 1)]

    def _lines(self) -> Iterator[str]:
        told = (event.line() for event in self.events if event.is_relevant)
        for line, same in groupby(told):
            count = len(list(same))
            yield line if count == 1 else f"{line}   ({count} times)"
