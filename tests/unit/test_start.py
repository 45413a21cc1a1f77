"""What a broker loads before it serves, and how its log lines look."""

import logging
import subprocess
import sys

import pytest

from txn.logs import log

LOADS = """\
import sys
sys.modules["hypothesis"] = None  # kio takes it along where it is installed, as for these tests
import txn.cli, txn.server.embedded
print(*(name for name in {names!r} if name in sys.modules))
"""
NOT_NEEDED = ("rich", "pygments", "email", "argparse", "confluent_kafka", "pyspark", "pyarrow")


def test_a_server_starts_without_what_only_other_commands_need() -> None:
    """`txn serve` took twice its time to start, because the demo's tables were loaded with it."""
    done = subprocess.run(
        [sys.executable, "-c", LOADS.format(names=NOT_NEEDED)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == []


def test_a_log_line_is_an_event_and_its_facts(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "txn"):
        log.info("txn.fenced", transactional_id="pay-3", producer_epoch=4)
    assert caplog.messages == ["txn.fenced transactional_id=pay-3 producer_epoch=4"]


def test_a_fact_that_could_be_taken_for_two_is_quoted(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "txn"):
        log.warning("disk.full", reason='no space on "/data" left=0\n', directory="")
    assert caplog.messages == [r'disk.full reason="no space on \"/data\" left=0\n" directory=""']


def test_an_exception_is_told_with_the_event(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "txn"):
        try:
            raise ValueError("seven")
        except ValueError:
            log.exception("request.failed", api_key=7)
    assert caplog.records[0].exc_info is not None
    assert "ValueError: seven" in caplog.text
