"""`txn.ProducerPool`: transactions for threads and the workers of a web application.

    pool = txn.ProducerPool("shop", 8, bootstrap_servers="...")

    def order(request):                      # in any thread
        with pool.transaction() as t:
            t.produce("orders", request.body)

A producer runs one transaction at a time. A pool lends one to each block. It opens a producer when
all that are open are in use, so a quiet pool has few connections.

| after a block its producer is | the pool |
|---|---|
| fit for another block | keeps it |
| broken, with `Action.REOPEN` (a commit in doubt, too) | closes it, and opens another later |
| fenced by another instance, with `Action.GIVE_UP` | closes it, and leaves its id alone |

The transactional ids are `prefix-0` to `prefix-(size-1)`. Opening a producer takes over its id. So
every process needs a prefix of its own that is the same after a restart: then the new process ends
the open transactions of the old one.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any, NoReturn, Self

import confluent_kafka

from txn import forks
from txn.client.deadline import Deadline
from txn.client.engine import DEFAULT_ENGINE, EngineName, engine_name
from txn.client.failures import not_copied, opened_elsewhere
from txn.client.native_settings import require_native_producer
from txn.client.producer import Producer
from txn.client.reach import CONNECT_TIMEOUT
from txn.client.settings import producer_settings
from txn.client.transaction import Transaction, require_consumer
from txn.errors import (
    Action,
    ConfigError,
    FencedError,
    RejectedError,
    RetriableError,
    TxnError,
)


@dataclass(eq=False)
class _Place:
    """One transactional id, and its producer if it is open."""

    transactional_id: str
    producer: Producer | None = None


class ProducerPool:
    """Up to `size` transactional producers, which are lent to one block each.

    Every method may be called from any thread. In a forked child every use raises ForkedError: open
    the pool in each worker process, with a prefix of its own.

    Args:
        prefix: Begin of the transactional ids: `prefix-0`, `prefix-1` and so on.
        size: Largest number of producers, and so of transactions at a time.
        config: Properties of the producers, as `Producer` takes them.
        bootstrap_servers: Property `bootstrap.servers`; a list is joined.
        timeout: Seconds that opening one of the producers may take.
        connect_timeout: As `Producer` takes it.
        engine: As `Producer` takes it.
        more: Further properties, with `_` for `.`: `linger_ms=5`.

    Raises:
        ConfigError: the prefix is empty, the size is not above 0, a transactional id is given, or
            a property of the producers does not fit.
    """

    def __init__(
        self,
        prefix: str,
        size: int,
        config: Mapping[str, object] | None = None,
        /,
        *,
        bootstrap_servers: str | list[str] | None = None,
        timeout: float = 60.0,
        connect_timeout: float = CONNECT_TIMEOUT,
        engine: EngineName = DEFAULT_ENGINE,
        **more: object,
    ) -> None:
        if not isinstance(prefix, str) or not prefix:
            raise ConfigError(f"prefix={prefix!r} is no name: give one, as 'shop'")
        if not isinstance(size, int) or size < 1:
            raise ConfigError(f"size={size!r} is no whole number from 1 on")
        if "transactional_id" in more or "transactional.id" in {**(config or {}), **more}:
            raise ConfigError(
                f"the pool {prefix!r} makes the ids of its producers from its prefix: leave "
                "transactional.id out",
                property="transactional.id",
            )
        self.prefix = prefix
        self.size = size
        self._config = config
        self._settings: dict[str, Any] = more
        self._bootstrap_servers = bootstrap_servers
        self._timeout = timeout
        self._connect_timeout = connect_timeout
        self._engine = engine_name(engine)
        self._require_settings()
        self._places = [_Place(f"{prefix}-{number}") for number in range(size)]
        self._free = deque(reversed(self._places))  # the last one is lent first
        # One entry for each free place. No lock: a signal could leave it locked.
        self._permits: SimpleQueue[None] = SimpleQueue()
        for _ in self._places:
            self._permits.put(None)
        self._fenced: dict[str, TxnError] = {}  # by id
        self._is_closed = False
        self._forked_from: int | None = None
        forks.watch(self)

    def _require_settings(self) -> None:
        """Refuse properties of the producers before one is opened. Raises ConfigError."""
        more = {name: value for name, value in self._settings.items() if name != "two_phase_commit"}
        settings = producer_settings(
            self._config,
            transactional_id=self.prefix,
            bootstrap_servers=self._bootstrap_servers,
            keywords=more,
        )
        if self._engine == "native":
            require_native_producer(settings, f"the pool {self.prefix!r}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<ProducerPool {self.prefix!r} of {self.size}>"

    def __reduce__(self) -> NoReturn:
        raise not_copied("txn.ProducerPool")

    @contextmanager
    def transaction(
        self, consumer: confluent_kafka.Consumer | None = None, timeout: float = 60.0
    ) -> Iterator[Transaction]:
        """Return a transaction of a free producer, for a `with` statement.

        The block is that of `Producer.transaction`, and raises what it raises. Within a block, do
        not begin another one of the same pool: blocks that wait for each other's producers wait
        until their time-outs.

        Args:
            consumer: The consumer whose offsets to commit; it belongs to the calling thread.
            timeout: Seconds to wait for a free producer, and then again for the end of the block.

        Raises:
            RetriableError: all producers were in use for `timeout` seconds.
            FencedError: other producers have taken every id of the pool.
            RejectedError: the pool is closed.
            ForkedError: the pool belongs to the parent of this process.
        """
        if consumer is not None:
            require_consumer(consumer)
        place = self._borrow(timeout)
        try:
            with self._producer_of(place).transaction(consumer, timeout) as t:
                yield t
        finally:
            self._give_back(place)

    def close(self, timeout: float = 60.0) -> None:
        """Wait until the producers in use are returned, and close all. Can be repeated.

        After `timeout` seconds a transaction that is still open is aborted; its block raises
        RejectedError where it ends.
        """
        if self._forked_from is not None:
            return
        self._is_closed = True
        deadline = Deadline(timeout)
        for _ in range(self.size - len(self._fenced)):
            try:
                self._permits.get(timeout=max(0.0, deadline.remaining))
            except Empty:
                break
        self._permits.put(None)  # one that waits finds the pool closed, and wakes the next
        for place in self._places:
            self._close_producer(place)
        forks.forget(self)

    # ------------------------------------------------------------ inside

    def _abandon(self, parent: int) -> None:
        """Be of no use in a forked child; see `txn.forks`."""
        self._forked_from = parent

    def _borrow(self, timeout: float) -> _Place:
        self._require_usable()
        try:
            self._permits.get(timeout=max(0.0, timeout))
        except Empty:
            raise RetriableError(
                f"all {self.size} producers of the pool {self.prefix!r} were in use for "
                f"{timeout:g} s. Try again, keep its blocks shorter, or open it with a larger size",
                size=self.size,
            ) from None
        try:
            self._require_usable()
            return self._free.pop()
        except BaseException:
            self._permits.put(None)
            raise

    def _require_usable(self) -> None:
        if self._forked_from is not None:
            raise opened_elsewhere(f"the pool {self.prefix!r}", self._forked_from)
        if self._is_closed:
            raise RejectedError(f"the pool {self.prefix!r} is closed; open another")
        if len(self._fenced) == self.size:
            error = next(iter(self._fenced.values()))
            raise FencedError(
                f"other producers have taken every id of the pool {self.prefix!r}. Each process "
                f"needs a prefix of its own: correct it, and close this pool. {error}",
                action=Action.GIVE_UP,
            )

    def _producer_of(self, place: _Place) -> Producer:
        if place.producer is None:
            place.producer = Producer(
                self._config,
                transactional_id=place.transactional_id,
                bootstrap_servers=self._bootstrap_servers,
                timeout=self._timeout,
                connect_timeout=self._connect_timeout,
                engine=self._engine,
                **self._settings,
            )
        return place.producer

    def _give_back(self, place: _Place) -> None:
        reason = None if place.producer is None else place.producer._handle.broken
        if reason is not None:
            self._close_producer(place)
        if reason is not None and reason.action is Action.GIVE_UP:
            self._fenced[place.transactional_id] = reason
            if len(self._fenced) < self.size:
                return
        else:
            self._free.append(place)
        self._permits.put(None)  # also once all are fenced: whoever waits is to know

    def _close_producer(self, place: _Place) -> None:
        producer, place.producer = place.producer, None
        if producer is not None:
            producer.close(self._timeout)
