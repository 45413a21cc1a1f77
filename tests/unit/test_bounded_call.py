"""A call that is awaited for a limited time, on a thread of its own unless it keeps its timeout."""

import threading
from functools import partial
from typing import Final

import pytest

from txn.client.bounded_call import BoundedCall, ends_in_time
from txn.client.deadline import Deadline
from txn.client.native import NativeProducer

WAIT_S: Final = 30.0


class _Engine:
    def __init__(self) -> None:
        self.threads: list[threading.Thread] = []

    def send(self, error: type[BaseException] | None) -> None:
        self.threads.append(threading.current_thread())
        if error is not None:
            raise error

    @ends_in_time
    def send_in_time(self, error: type[BaseException] | None) -> None:
        self.send(error)


def test_a_call_that_may_never_come_back_runs_on_a_thread_of_its_own() -> None:
    engine = _Engine()
    assert BoundedCall(partial(engine.send, None)).run(Deadline(WAIT_S))
    assert engine.threads != [threading.current_thread()]


def test_a_call_that_keeps_its_timeout_runs_on_the_callers_thread() -> None:
    engine = _Engine()
    assert BoundedCall(partial(engine.send_in_time, None)).run(Deadline(WAIT_S))
    assert engine.threads == [threading.current_thread()]


def test_a_signal_in_a_call_on_the_callers_thread_is_raised_and_the_call_is_over() -> None:
    call = BoundedCall(partial(_Engine().send_in_time, KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        call.run(Deadline(WAIT_S))
    assert call.is_over(Deadline(0))


def test_the_native_engine_sends_offsets_on_the_callers_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(threading, "Thread", None)
    native = NativeProducer.__new__(NativeProducer)
    sending = partial(native.send_offsets_to_transaction, [], b"of nobody", WAIT_S)
    with pytest.raises(TypeError, match="not the group metadata"):
        BoundedCall(sending).run(Deadline(WAIT_S))
