"""The programs of `examples/spark/`, killed at work, write every record once (P3, P4).

The short version: some of them as queries of one session, killed once. `make patterns` runs each
alone, on every broker, and kills it as often as it is told to.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest
from confluent_kafka import Message

from spark.kill.harness import TxnBroker
from spark.patterns.harness import EXAMPLES, PatternCase, Strike, compare, told
from spark.patterns.oracle import PATTERNS, Fed

SHARED = {"job", "reset"}
"""Modules that are no program for the pattern of a stream."""

TO_A_DATABASE = {"database_rows", "database_totals"}
"""`tests/spark/test_database.py` kills these."""

SAMPLE = ("top_n", "table_join", "several_sinks")
"""A start of Spark costs many seconds of CPU, and so does each program."""


def test_every_program_has_an_oracle() -> None:
    programs = {path.stem for path in EXAMPLES.glob("*.py")} - SHARED
    assert programs - TO_A_DATABASE == PATTERNS.keys()


@pytest.mark.spark
@pytest.mark.crash
@pytest.mark.timeout(900)
def test_P3_programs_killed_at_work_have_every_record_in_the_output_once(tmp_path: Path) -> None:
    broker = TxnBroker(tmp_path)
    try:
        findings = PatternCase(SAMPLE, broker, tmp_path).run([Strike.ANY], seed=1)
    finally:
        broker.stop()
    print(told(findings))
    assert all(finding.holds for finding in findings), told(findings)
    assert all(finding.killed_at_work for finding in findings)


@dataclass
class Line:
    """A record of an output, as confluent-kafka gives it."""

    text: str

    def key(self) -> bytes:
        return self.text.partition(" ")[0].encode()

    def value(self) -> bytes:
        return self.text.partition(" ")[2].encode()


def test_record_too_many_and_record_too_few_are_found() -> None:
    """The judge itself, without Spark."""
    pattern = PATTERNS["map_filter"]
    fed = Fed(others=pattern.bite(1))
    lines = [cast(Message, Line(text)) for text in pattern.expected(fed, {})["output"]]
    assert compare(pattern, fed, {"output": lines}).holds
    found = compare(pattern, fed, {"output": [*lines[1:], lines[-1]]})
    assert (found.expected, found.missing.total(), found.extra.total()) == (19, 1, 1)


def test_windows_of_the_oracle_leave_late_views_out() -> None:
    pattern = PATTERNS["windows"]
    opening = [record for bite in pattern.opening for record in bite]
    fed = Fed(opening, [*pattern.bite(0), *pattern.closing])
    counted = sum(
        json.loads(line.partition(" ")[2])["views"] * times
        for line, times in pattern.expected(fed, {})["output"].items()
    )
    late, not_closed = 2, 1
    assert counted == len(fed.all) - late - not_closed
