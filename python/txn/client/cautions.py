"""Warns, once per producer, about programs that look right and are not exactly-once.

- *A plain consumer*: its enable.auto.commit cannot be seen from outside, and is true by default.
- *A consumer that was forgotten*: a block commits output, and its thread has read records inside
  the block that neither it nor anything else commits. A block that only produces stays silent,
  as does a reader of another thread, one of another block, and one that was read before.
"""

import logging
import os
import threading
import weakref
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from txn.client.consumer import Consumer

_logger: Final = logging.getLogger("txn.client")


class _LastRead(threading.local):
    """The consumer that a thread has read last, and `time.monotonic` of that."""

    consumer: "weakref.ref[Consumer] | None" = None
    made_s: float = 0.0


_last_read: Final = _LastRead()


def _forget_in_child() -> None:
    """Forget the consumer in a forked child, where it is of no use; see `txn.forks`."""
    _last_read.consumer = None


os.register_at_fork(after_in_child=_forget_in_child)


def note_read(consumer: "Consumer", now_s: float) -> None:
    """Remember that the calling thread has records of this consumer."""
    previous = None if _last_read.consumer is None else _last_read.consumer()
    if previous is not consumer:
        if previous is not None:
            previous._leave_fast_path()  # so that its next read comes here
        _last_read.consumer = weakref.ref(consumer)
    _last_read.made_s = now_s


class Cautions:
    """Warns of the blocks of one producer."""

    def __init__(self, whose: str) -> None:
        self._whose = whose
        self._warned: set[str] = set()

    def of_plain_consumer(self) -> None:
        """Warn that a block uses a plain `confluent_kafka.Consumer`."""
        self._warn(
            "plain",
            "%s has a transaction with a plain confluent_kafka.Consumer. It must have "
            "enable.auto.commit=false, which cannot be seen from outside: with true, the default, "
            "records are skipped after an abort. A txn.Consumer makes sure of it",
            self._whose,
        )

    def of_forgotten_consumer(self, since_s: float) -> None:
        """Warn if the calling thread has read records since then that nothing commits."""
        reader = None if _last_read.consumer is None else _last_read.consumer()
        if (
            reader is not None
            and max(_last_read.made_s, reader._last_fast_read_s()) > since_s
            and reader._positions.is_uncommitted(since_s)
        ):
            self._warn(
                "forgotten",
                "%s committed a transaction without the offsets of the consumer of group %r, "
                "which was read in its block: its records are read again. Give the consumer to "
                "the transaction: `with producer.transaction(consumer) as t:`",
                self._whose,
                reader.group_id,
            )

    def _warn(self, kind: str, text: str, *values: object) -> None:
        if kind not in self._warned:
            self._warned.add(kind)
            _logger.warning(text, *values)
