"""The opening of a client of `txn.aio` that is cancelled, without a broker."""

import asyncio
import threading

import pytest

import txn
from support.stepping import Moment, is_cancelled_at
from txn.aio.client import Client
from txn.client.deadline import Deadline, InterruptedWaitError


class Opened:
    """A synchronous client."""

    is_closed = False

    def close(self) -> None:
        self.is_closed = True


@pytest.mark.parametrize("moment", Moment)
def test_a_client_that_was_opened_for_a_cancelled_task_is_closed(moment: Moment) -> None:
    opened: list[Opened] = []

    def make() -> Opened:
        opened.append(Opened())
        return opened[0]

    async def run() -> None:
        client = Client("txn.aio.Producer", "the producer", make)
        assert await is_cancelled_at(1, moment, client.open())
        with pytest.raises(txn.RejectedError, match="is closed"):
            client.sync()

    asyncio.run(run())
    assert opened[0].is_closed


def test_a_cancellation_interrupts_the_slices_of_an_opening() -> None:
    waits = threading.Event()
    ended: list[BaseException] = []

    def make() -> Opened:
        deadline = Deadline(60)
        try:
            while True:
                waits.wait(deadline.slice())
        except BaseException as raised:
            ended.append(raised)
            raise

    async def run() -> None:
        client = Client("txn.aio.Producer", "the producer", make)
        assert await is_cancelled_at(1, Moment.WAITING, client.open())

    asyncio.run(run())
    assert [type(each) for each in ended] == [InterruptedWaitError]
