"""A signal stops a command wherever it comes."""

import os
import signal
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from txn.cli.stopping import sigterm_as_ctrl_c

UNREACHABLE = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(
    "client", [Producer, lambda settings: Consumer({**settings, "group.id": "g"})]
)
def test_signal_within_a_callback_of_confluent_kafka_stops_the_command(
    client: Any, number: signal.Signals
) -> None:
    """It lost the KeyboardInterrupt, and raised a SystemError."""

    def report(_: object) -> None:
        os.kill(os.getpid(), number)

    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt), sigterm_as_ctrl_c():
        polled = client({**UNREACHABLE, "error_cb": report})
        while True:
            polled.poll(1)
    assert signal.getsignal(number) is before


def test_ignored_signal_stays_ignored() -> None:
    """A shell without job control starts a command with `&` so: Ctrl-C is for others."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with sigterm_as_ctrl_c():
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
