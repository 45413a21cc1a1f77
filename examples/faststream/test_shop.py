"""The application beside a real broker, stopped and started again."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from txn.testing import TestBroker

PROGRAM_S = 60.0


@pytest.fixture
def broker() -> Iterator[TestBroker]:
    with TestBroker() as made:
        for topic in ("orders", "invoices", "mails"):
            made.create_topic(topic)
        yield made


def values(broker: TestBroker, topic: str) -> list[bytes | None]:
    return [record.value for record in broker.records(topic)]


def test_invoices_are_exactly_once_over_a_restart_and_mails_follow(broker: TestBroker) -> None:
    code = "import asyncio, shop; asyncio.run(shop.app.run())"
    for turn in (1, 2):
        broker.produce("orders", f"apples {turn}", f"pears {turn}")
        with subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", code],
            cwd=Path(__file__).parent,
            env=os.environ | {"KAFKA": broker.bootstrap_servers},
        ) as program:
            broker.wait_for_records("mails", 2 * turn, timeout=PROGRAM_S)
            program.send_signal(signal.SIGTERM)
            assert program.wait(PROGRAM_S) == 0
    invoices = [b"APPLES 1", b"PEARS 1", b"APPLES 2", b"PEARS 2"]
    assert values(broker, "invoices") == invoices
    assert values(broker, "mails") == [b"Your invoice: " + each for each in invoices]
