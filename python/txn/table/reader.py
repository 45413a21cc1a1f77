"""`TableReader`: all rows of a table, read-only; a thread follows the topic."""

import threading
import time
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Final, Self

from txn.errors import ConfigError, RejectedError, RetriableError, TxnError
from txn.table.local_copy import LocalCopy
from txn.table.opening import TableSettings
from txn.table.partitioner import partition_of

CHECK_S: Final = 1.0
"""Between two looks whether the topic was created anew."""

STOP_S: Final = 60.0


class TableReader(Mapping[Any, Any]):
    """The committed rows of a table, as a mapping; use it in a `with` statement.

    The rows follow the topic. They are read before the constructor returns up to the end that the
    topic had then, as far as transactions are decided. Any thread may use it.

    Args:
        settings: The table.
        poll_interval: Seconds between two looks for new records.

    Every use may raise the error that ended the thread; an error that a later look may not meet,
    as of a broker that restarts, does not end it.
    """

    def __init__(self, settings: TableSettings, *, poll_interval: float) -> None:
        if poll_interval <= 0:
            raise ConfigError(f"poll_interval takes seconds above 0, not {poll_interval:g}")
        self.topic = settings.topic
        self._settings = settings
        self._interval_s = poll_interval
        self._opened: LocalCopy = settings.open(is_keyed=False)
        self._lock = threading.Condition(self._opened.lock)
        self._is_asked = False  # to look now
        self._is_closing = False
        self._passes_begun = 0
        self._pass_done = 0  # the number of the last one that was finished
        self._failure: TxnError | None = None
        self._retried: TxnError | None = None
        self._checked_s = time.monotonic()
        try:
            self._look()
        except BaseException:
            self._release()
            raise
        self._thread = threading.Thread(target=self._follow, name=f"table {self.topic}")
        self._thread.daemon = True
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __getitem__(self, key: Any) -> Any:
        data = self._settings.key.to_bytes(key, "key")
        with self._lock:
            self._require_open()
            value = self._value(data)
        if value is None:
            raise KeyError(key)
        return self._settings.value.loads(value)

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the keys that are there now."""
        with self._lock:
            self._require_open()
            store = self._opened.store
            keys = [key for each in range(self._opened.count) for key in store.keys(each)]
        return map(self._settings.key.loads, keys)

    def __len__(self) -> int:
        with self._lock:
            self._require_open()
            return sum(self._opened.store.count(each) for each in range(self._opened.count))

    @property
    def rows_read(self) -> int:
        """The number of records read from the topic so far."""
        return self._opened.records_read

    def wait_until(self, offset: int, partition: int = 0, timeout: float = 60.0) -> None:
        """Wait until the rows contain the record at an offset of a partition.

        Raises:
            RetriableError: it takes longer. The record may belong to an open transaction.
            ConfigError: the topic has no such partition.
        """
        if not 0 <= partition < self._opened.count:
            raise ConfigError(f"the table {self.topic!r} has no partition {partition}")

        def is_reached() -> bool:
            place = self._opened.store.place(partition)
            return place is not None and place.next_offset > offset

        self._await(is_reached, timeout, f"offset {offset} of {self.topic}-{partition}")

    def wait_until_current(self, timeout: float = 60.0) -> None:
        """Wait until the rows have everything that was committed before this call.

        Raises RetriableError: it takes longer.
        """
        with self._lock:
            begun = self._passes_begun
        self._await(lambda: self._pass_done > begun, timeout, f"the end of {self.topic!r}")

    def close(self) -> None:
        """End the thread and let go of the store. Can be repeated."""
        with self._lock:
            if self._is_closing:
                return
            self._is_closing = True
            self._lock.notify_all()
        self._thread.join(STOP_S)
        with self._lock:
            self._release()

    def _value(self, key: bytes) -> bytes | None:
        """Return a value; a producer with another partitioner may have put it anywhere."""
        count = self._opened.count
        first = partition_of(key, count)
        for partition in (first, *(each for each in range(count) if each != first)):
            if (value := self._opened.store.get(partition, key)) is not None:
                return value
        return None

    def _release(self) -> None:
        self._opened.changelog.close()
        self._opened.store.close()

    def _await(self, is_reached: Any, timeout: float, goal: str) -> None:
        ends_s = time.monotonic() + timeout
        with self._lock:
            while not is_reached():
                self._require_open()
                left_s = ends_s - time.monotonic()
                if left_s <= 0:
                    why = "" if self._retried is None else f". {self._retried}"
                    raise RetriableError(
                        f"the reader has not reached {goal} within {timeout:g} s{why}"
                    )
                self._is_asked = True
                self._lock.notify_all()
                self._lock.wait(left_s)

    def _require_open(self) -> None:
        if self._is_closing:
            raise RejectedError(f"the reader of the table {self.topic!r} is closed; open another")
        if self._failure is not None:
            raise self._failure

    def _follow(self) -> None:
        while True:
            with self._lock:
                if not self._is_asked:
                    self._lock.wait_for(
                        lambda: self._is_asked or self._is_closing, self._interval_s
                    )
                if self._is_closing:
                    return None
                self._is_asked = False
            try:
                self._look()
            except RetriableError as error:
                with self._lock:
                    self._retried = error
                    self._lock.wait_for(lambda: self._is_closing, self._interval_s)
            except TxnError as error:
                return self._fail(error)
            except Exception as error:
                self._fail(RejectedError(f"the reader of {self.topic!r} ended: {error!r}"))
                raise

    def _fail(self, error: TxnError) -> None:
        with self._lock:
            self._failure = error
            self._lock.notify_all()

    def _look(self) -> None:
        """Read everything that is committed now."""
        with self._lock:
            self._passes_begun += 1
            number = self._passes_begun
        if time.monotonic() - self._checked_s >= CHECK_S:
            self._checked_s = time.monotonic()
            self._opened.check_topic()
        partitions = list(range(self._opened.count))
        stable = self._opened.changelog.stable(partitions)
        for partition, offset in zip(partitions, stable, strict=True):
            self._opened.follow(partition, offset)
        with self._lock:
            self._retried = None
            self._pass_done = number
            self._lock.notify_all()
