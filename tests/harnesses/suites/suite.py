"""The suites: where each comes from, and how it finds the broker."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harnesses.suites.crates import run_crate_tests
from harnesses.suites.go_modules import run_go_tests
from harnesses.suites.outcomes import SuiteRun
from harnesses.suites.targets import PLAIN


@dataclass(frozen=True)
class Suite:
    """One suite of a client."""

    name: str
    release: str
    run: Callable[[Path], SuiteRun]
    """Runs it against the broker at `PLAIN`; its argument keeps what is built of it."""


KAFKA_GO: Final = "github.com/segmentio/kafka-go@v0.4.51"
FRANZ_GO: Final = "github.com/twmb/franz-go@v1.22.3"
RSKAFKA: Final = "0.6.0"

KAFKA_GO_SKIPPED: Final = (
    "^TestReaderConsumerGroup$/"
    "^(verify_offset_committed(_when_using_interval_committer)?|consumer_group_commits_on_close)$"
)
"""Tests that call a function of their client which is nil, and so end all the others."""


def _kafka_go(_directory: Path) -> SuiteRun:
    # From 4.0.0 on, the suite has a user for each mechanism of SCRAM.
    return run_go_tests(KAFKA_GO, ["./..."], {"KAFKA_VERSION": "4.0.0"}, skip=KAFKA_GO_SKIPPED)


def _franz_go(_directory: Path) -> SuiteRun:
    environment = {
        "KGO_SEEDS": PLAIN,
        "KGO_TEST_RF": "1",
        "KGO_TEST_RECORDS": "50000",
        "KGO_LOG_LEVEL": "none",
    }
    return run_go_tests(FRANZ_GO, ["./pkg/kgo"], environment)


def _rskafka(directory: Path) -> SuiteRun:
    environment = {
        "TEST_INTEGRATION": "1",
        "TEST_BROKER_IMPL": "kafka",
        "KAFKA_CONNECT": PLAIN,
    }
    options = ["--features=full"]
    return run_crate_tests(
        "rskafka", RSKAFKA, directory, environment, options=options, updates=["rsasl"]
    )


SUITES: Final = {
    each.name: each
    for each in (
        Suite("kafka-go", KAFKA_GO, _kafka_go),
        Suite("franz-go", FRANZ_GO, _franz_go),
        Suite("rskafka", f"rskafka {RSKAFKA}", _rskafka),
    )
}
