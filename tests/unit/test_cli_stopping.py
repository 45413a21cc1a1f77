"""A signal stops a command wherever it comes."""

import os
import signal

import pytest

from txn.cli.stopping import signals_outlive_callbacks


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_that_confluent_kafka_has_lost_in_a_callback_stops_the_command(
    number: signal.Signals,
) -> None:
    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt), signals_outlive_callbacks():
        try:
            os.kill(os.getpid(), number)
        except KeyboardInterrupt:
            raise SystemError("poll returned NULL without setting an exception") from None
    assert signal.getsignal(number) is before


def test_other_system_errors_are_left_as_they_are() -> None:
    with pytest.raises(SystemError), signals_outlive_callbacks():
        raise SystemError("another")
