"""`txn.Processor`: its options, its workers and its end.

A processor has a thread for each worker, and each worker has a thread for its handler. The thread
that called `run` waits for them: Python runs the handlers of signals there.
"""

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from types import FrameType
from typing import Any, Final

import txn.client
from txn.client.engine import DEFAULT_ENGINE, EngineName, engine_name
from txn.client.native_settings import require_native_consumer, require_native_producer
from txn.client.settings import consumer_settings, producer_settings
from txn.errors import ConfigError, RejectedError
from txn.identifiers import TopicPartition as Place
from txn.logs import EventLog
from txn.processor.ends import is_at_end
from txn.processor.handling import Handling, require_handler
from txn.processor.intake import Intake
from txn.processor.metrics import Counters, Metrics
from txn.processor.pauses import Backoff
from txn.processor.records import Record
from txn.processor.topics import Topics
from txn.processor.worker import Delay, Rules, Worker

LOOK_S: Final = 0.05
"""Seconds between two looks at the workers."""

_log: Final = EventLog(logging.getLogger("txn.processor"))


class Processor:
    """Reads records, hands them to a function, and writes its results, exactly once.

    The results of a batch, its dead letters and its offsets are in one transaction. The handler
    runs before that transaction begins, in a thread of its own. It may run more than once for a
    record, after a crash or a rebalance, so its side effects are not exactly once.

        txn.Processor("orders", price, "invoices", dead_letter="orders-dead",
                      group_id="shop", transactional_id="shop", bootstrap_servers="…").run()

    Args:
        input: A topic or several.
        handle: Called with a `Record`. It returns None, a value, an `Output`, or a list of these.
            A value goes to `output` with the key of the record. It may be a coroutine function.
        output: The topic of plain values.
        dead_letter: The topic of records that cannot be handled. Without it such a record ends the
            processor with a RejectedError that names it.
        handle_batch: Instead of `handle`: called with a list of records.
        group_id: The consumer group, which shares the partitions among its members.
        transactional_id: A prefix: worker 0 has `PREFIX-0`. Each running instance needs one of its
            own, and the same one after a restart.
        bootstrap_servers: The cluster; a list is joined.
        config: Properties of both clients: `security.protocol`, `sasl.*`, `client.id`.
        consumer_config: Properties of the consumers: `max.poll.interval.ms`.
        producer_config: Properties of the producers: `transaction.timeout.ms`, `compression.type`.
        engine: The engine of the producers and consumers; see `txn.Producer`.
        parallel: Number of workers; each has a share of the partitions.
        batch_size: The most records of a transaction.
        batch_wait: Seconds to wait for a batch to fill up once it has a record.
        attempts: Calls of the handler before a record counts as failed.
        retried: Exceptions after which the handler is called again, with back-off. A record fails
            at once with any other.
        outage: Exceptions that are no fault of the record, such as ConnectionError: the handler is
            called again until it succeeds.
        retry: Delays after which a failed record is handled once more, `attempts` times, before it
            becomes a dead letter: seconds or timedeltas. Each has a topic, `GROUP-retry-30s`.
        backoff: The first pause after an error and the longest, in seconds; pauses double.
        concurrency: Records that a coroutine function handles at a time.
        timeout: Seconds that a transaction may take to end.
        stop_timeout: Seconds that the handler may go on after a request to stop.
        clock: Returns the time in seconds since 1970, for the due times of `retry`.

    Raises:
        ConfigError: an option or a property does not fit; raised before any I/O.
        TypeError: there is no function to call, or there are two.
    """

    def __init__(
        self,
        input: str | Sequence[str],
        handle: Callable[[Record], Any] | None = None,
        output: str | None = None,
        dead_letter: str | None = None,
        *,
        handle_batch: Callable[[Sequence[Record]], Any] | None = None,
        group_id: str,
        transactional_id: str,
        bootstrap_servers: str | list[str] | None = None,
        config: Mapping[str, object] | None = None,
        consumer_config: Mapping[str, object] | None = None,
        producer_config: Mapping[str, object] | None = None,
        engine: EngineName = DEFAULT_ENGINE,
        parallel: int = 1,
        batch_size: int = 500,
        batch_wait: float = 0.05,
        attempts: int = 3,
        retried: type[Exception] | tuple[type[Exception], ...] = Exception,
        outage: type[Exception] | tuple[type[Exception], ...] = (),
        retry: Sequence[float | timedelta] = (),
        backoff: tuple[float, float] = (0.1, 30.0),
        concurrency: int = 64,
        timeout: float = 60.0,
        stop_timeout: float = 30.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        require_handler(handle, handle_batch)
        self._topics = [input] if isinstance(input, str) else list(input)
        numbers = {
            "parallel": parallel,
            "batch_size": batch_size,
            "attempts": attempts,
            "concurrency": concurrency,
        }
        _require_sound(self._topics, group_id, transactional_id, numbers)
        delays = _delays(retry, group_id)
        _require_apart(self._topics, output, dead_letter, delays)
        pauses = Backoff(*backoff)
        self._parallel = parallel
        self._rules = Rules(
            group=group_id,
            handling=Handling(
                handle,
                handle_batch,
                output,
                attempts,
                retried if isinstance(retried, tuple) else (retried,),
                outage if isinstance(outage, tuple) else (outage,),
                pauses,
                concurrency,
            ),
            dead_letter=dead_letter,
            delays=delays,
            backoff=pauses,
            batch_size=batch_size,
            poll_seconds=0.2,
            fill_seconds=batch_wait,
            timeout=timeout,
            stop_timeout=stop_timeout,
            now_ms=lambda: int(clock() * 1000),
        )
        self._transactional_id = transactional_id
        self._engine = engine_name(engine)
        self._common = dict(config or {})
        if bootstrap_servers is not None:
            if "bootstrap.servers" in self._common:
                raise ConfigError("bootstrap.servers is given twice", property="bootstrap.servers")
            self._common["bootstrap.servers"] = (
                bootstrap_servers
                if isinstance(bootstrap_servers, str)
                else ",".join(bootstrap_servers)
            )
        self._producer_config = {**self._common, **(producer_config or {})}
        self._consumer_config = {
            "auto.offset.reset": "earliest",
            **self._common,
            **(consumer_config or {}),
            "enable.partition.eof": True,
        }
        self._require_settings(group_id)
        self._counters = Counters()
        self._is_stopping = threading.Event()
        self._is_forced = threading.Event()
        self._lock = threading.Lock()
        self._is_running = False
        self._needs_ends = False
        self._ends: set[Place] = set()  # partitions that a worker has read to their end
        self._errors: list[BaseException] = []
        self._workers: list[Worker] = []

    def _require_settings(self, group_id: str) -> None:
        """Refuse properties of both clients before one is opened. Raises ConfigError."""
        of_consumers = consumer_settings(
            self._consumer_config, group_id=group_id, bootstrap_servers=None, keywords={}
        )
        of_producers = producer_settings(
            self._producer_config,
            transactional_id=self._transactional_id,
            bootstrap_servers=None,
            keywords={},
        )
        if self._engine == "native":
            require_native_consumer(of_consumers, f"the consumer of group {group_id!r}")
            require_native_producer(of_producers, f"producer {self._transactional_id!r}")

    @property
    def group_id(self) -> str:
        """The consumer group."""
        return self._rules.group

    @property
    def transactional_id(self) -> str:
        """The prefix of its workers' transactional ids."""
        return self._transactional_id

    def metrics(self) -> Metrics:
        """Return the counts and times of one moment; any thread may ask."""
        return self._counters.metrics()

    def stop(self) -> None:
        """Ask the processor to finish its batch and to return; any thread may ask.

        A second call drops the batch under way: its transaction is aborted, and the next start
        handles its records again. So does `stop_timeout`.
        """
        if self._is_stopping.is_set():
            self._is_forced.set()
        self._is_stopping.set()

    def run(self) -> None:
        """Process until SIGTERM, SIGINT or `stop`.

        In the main thread it answers both signals itself: the batch under way commits, and `run`
        returns. In another thread the program calls `stop`. It can be run again.

        Raises:
            UnreachableError: no broker is at the bootstrap servers.
            RejectedError: a record failed and there is no topic of dead letters; or the cluster
                refuses something.
            FencedError: another instance has taken over a transactional id.
            RejectedError: it runs already.
        """
        self._run(until_caught_up=False)

    def run_until_caught_up(self, timeout: float | None = None) -> None:
        """Process until every partition of the input was read to its end, then return.

        For batch jobs and tests. Delayed retries are part of the input: it waits for them.

        Args:
            timeout: Seconds after which it gives up; None: no limit.

        Raises:
            TimeoutError: it was not caught up in time. What is committed stays so.
            TxnError: as `run`.
        """
        self._run(until_caught_up=True, timeout=timeout)

    def _run(self, *, until_caught_up: bool, timeout: float | None = None) -> None:
        with self._lock:
            if self._is_running:
                raise RejectedError("this processor runs already; make another one, or stop it")
            self._is_running = True
        try:
            with self._signals():
                self._process(until_caught_up, timeout)
        finally:
            self._is_running = False
            self._is_stopping.clear()
            self._is_forced.clear()

    def _process(self, until_caught_up: bool, timeout: float | None) -> None:
        self._needs_ends = until_caught_up
        self._ends.clear()
        self._errors.clear()
        self._workers.clear()
        delayed = [delay.topic for delay in self._rules.delays]
        letters = [] if self._rules.dead_letter is None else [self._rules.dead_letter]
        topics = Topics(self._common, self._rules.group)
        topics.make_missing([*delayed, *letters])
        threads = [
            threading.Thread(target=self._work, args=[number], name=f"txn-processor-{number}")
            for number in range(self._parallel)
        ]
        _log.info(
            "processor.started",
            group_id=self._rules.group,
            topics=",".join(self._topics),
            workers=len(threads),
        )
        expected = topics.partitions_of([*self._topics, *delayed]) if until_caught_up else None
        deadline_s = None if timeout is None else time.monotonic() + timeout
        for thread in threads:
            thread.start()
        try:
            is_late = self._wait(threads, expected, deadline_s)
        finally:
            self._is_stopping.set()
            for thread in threads:
                thread.join()
            metrics = self.metrics()
            _log.info(
                "processor.stopped",
                group_id=self._rules.group,
                handled=metrics.handled,
                dead_lettered=metrics.dead_lettered,
            )
        if self._errors:
            raise self._errors[0]
        if is_late:
            raise TimeoutError(
                f"the processor of group {self._rules.group!r} was not caught up within "
                f"{timeout:g} s: its lag is {metrics.lag}"
            )

    def _wait(
        self,
        threads: Sequence[threading.Thread],
        expected: frozenset[Place] | None,
        deadline_s: float | None,
    ) -> bool:
        """Wait until the processor has to end; return True if that is for the deadline."""
        while not self._is_stopping.is_set() and all(thread.is_alive() for thread in threads):
            if expected is not None and self._has_caught_up(expected):
                return False
            if deadline_s is not None and time.monotonic() > deadline_s:
                return True
            self._is_stopping.wait(LOOK_S)
        while any(thread.is_alive() for thread in threads) and self._is_stopping.is_set():
            threads[0].join(LOOK_S)  # a second signal is heard meanwhile
            threads = [thread for thread in threads if thread.is_alive()]
        return False

    def _has_caught_up(self, expected: frozenset[Place]) -> bool:
        with self._lock:
            return expected <= self._ends and all(each.is_idle for each in self._workers)

    def _work(self, number: int) -> None:
        try:
            consumer = txn.client.Consumer(
                self._consumer_config, group_id=self._rules.group, engine=self._engine
            )
            try:
                delayed = [delay.topic for delay in self._rules.delays]
                intake = Intake(
                    consumer,
                    self._topics,
                    delayed,
                    self._rules.now_ms,
                    self._note_end,
                    self._knows_end,
                    self._ask_end if self._needs_ends else None,
                )
                worker = Worker(
                    number,
                    self._rules,
                    lambda: txn.client.Producer(
                        self._producer_config,
                        transactional_id=f"{self._transactional_id}-{number}",
                        engine=self._engine,
                    ),
                    intake,
                    self._counters,
                    self._is_stopping,
                    self._is_forced,
                    self._note_written,
                )
                with self._lock:
                    self._workers.append(worker)
                worker.run()
            finally:
                with suppress(RuntimeError):  # it is closed
                    consumer.close()
        except BaseException as error:
            self._errors.append(error)
            self._is_stopping.set()

    def _note_end(self, place: Place, is_at_end: bool) -> None:
        with self._lock:
            if is_at_end:
                self._ends.add(place)
            else:
                self._ends.discard(place)

    def _knows_end(self, place: Place) -> bool:
        with self._lock:
            return place in self._ends

    def _ask_end(self, place: Place, offset: int | None) -> bool:
        config, group = self._consumer_config, self._rules.group
        return is_at_end(config, group, place, offset, self._engine)

    def _note_written(self, topics: set[str]) -> None:
        """Forget that retry topics were read to their ends: a transaction writes to them."""
        with self._lock:
            self._ends = {place for place in self._ends if place[0] not in topics}

    @contextmanager
    def _signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def stop(number: int, _: FrameType | None) -> None:
            self.stop()

        before = {number: signal.signal(number, stop) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


def _require_sound(
    topics: Sequence[str], group_id: str, transactional_id: str, numbers: Mapping[str, object]
) -> None:
    if not topics or not all(isinstance(each, str) and each for each in topics):
        raise ConfigError("input has no topic: give Processor() a topic or a list of them")
    for name, text in (("group_id", group_id), ("transactional_id", transactional_id)):
        if not isinstance(text, str) or not text:
            raise ConfigError(f"{name} is empty: name it, the same name after each restart")
    for name, number in numbers.items():
        if not isinstance(number, int) or isinstance(number, bool) or number < 1:
            raise ConfigError(f"{name}={number!r} does not fit: give a whole number from 1 on")


def _require_apart(
    topics: Sequence[str], output: str | None, dead_letter: str | None, delays: Sequence[Delay]
) -> None:
    for name, topic in (("output", output), ("dead_letter", dead_letter)):
        if topic in topics:
            raise ConfigError(
                f"{name}={topic!r} is an input topic too, so its records would come again for "
                "ever. Give it another topic"
            )
    if len({delay.topic for delay in delays}) < len(delays):
        raise ConfigError("retry has a delay twice; give each delay once, as [30, 300]")


def _delays(retry: Sequence[float | timedelta], group_id: str) -> list[Delay]:
    delays = []
    for each in retry:
        seconds = each.total_seconds() if isinstance(each, timedelta) else each
        if isinstance(seconds, (str, bool)) or not 0 < seconds < 10**9:
            raise ConfigError(f"retry={each!r} does not fit: give seconds above 0, or a timedelta")
        delays.append(Delay(f"{group_id}-retry-{_duration(seconds)}", float(seconds)))
    return delays


def _duration(seconds: float) -> str:
    """Return `30s`, `5m`, `2h`, `1d` or `250ms`."""
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= size and seconds % size == 0:
            return f"{int(seconds // size)}{unit}"
    return f"{int(seconds)}s" if seconds == int(seconds) else f"{int(seconds * 1000)}ms"
