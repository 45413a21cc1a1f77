"""Runs a `txn.Processor` in a thread, and looks at the results."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import txn
from txn.testing import TestBroker

MakeProcessor = Callable[..., txn.Processor]
WAIT_S = 30.0


@contextmanager
def running(processor: txn.Processor) -> Iterator[list[BaseException]]:
    """Run a processor in a thread; stop it at the end of the block. The list has its error."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            processor.run()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield errors
    finally:
        processor.stop()
        thread.join(WAIT_S)
        assert not thread.is_alive()


def values(broker: TestBroker, topic: str) -> list[bytes]:
    """The values of a topic's committed records, sorted."""
    return sorted(record.value or b"" for record in broker.records(topic))


def until(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    deadline_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline_s, "the condition never held"
        time.sleep(0.01)
