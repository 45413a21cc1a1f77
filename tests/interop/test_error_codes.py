"""The table of error codes beside the one in Apache Kafka's jars."""

import json
from pathlib import Path
from typing import Final

import pytest

from harnesses.peers.jars import NODE_4_2, NODE_4_4, JarSet, run_java
from txn import _core

PROGRAM: Final = Path(__file__).parent / "java" / "ErrorCodes.java"

pytestmark = [pytest.mark.java, pytest.mark.timeout(120)]


def of_kafka(jars: JarSet) -> set[tuple[int, str, bool]]:
    """The number, the name and the mark of each code in a release of Kafka."""
    rows = json.loads(run_java(str(PROGRAM), jars=jars))
    return {(code, name, is_retriable) for code, name, is_retriable in rows}


def test_every_error_code_of_kafka_has_its_number_name_and_mark() -> None:
    ours = {(code, name, retriable) for code, name, retriable, _ in _core.error_codes()}
    assert sorted(ours ^ of_kafka(NODE_4_4)) == []
    assert of_kafka(NODE_4_2) < ours  # a number never changes its meaning
