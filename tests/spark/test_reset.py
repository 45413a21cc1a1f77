"""A program of `examples/spark/` that is reset in place computes its results anew (P3)."""

import subprocess
import sys
import threading
from collections import Counter
from importlib import import_module
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark.jobs import put
from spark.patterns.harness import EXAMPLES
from support import clients

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas"),
]


def orders(numbers: range) -> list[str]:
    return [f'{{"id": {n}, "customer": "c", "amount": {100 + n}}}' for n in numbers]


def results(numbers: range) -> Counter[bytes | None]:
    return Counter(f'{{"id":{n},"cents":{(100 + n) * 100}}}'.encode() for n in numbers)


def test_P3_program_that_is_reset_in_place_has_each_result_once(
    spark: SparkSession,
    servers: str,
    topic: str,
    output: str,
    checkpoint: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A new checkpoint alone would leave the old results beside the new ones."""
    monkeypatch.syspath_prepend(EXAMPLES)
    program = import_module("map_filter").PROGRAM
    where = ["--bootstrap-servers", servers, "--checkpoint", str(checkpoint), "--output", output]
    given = program.given([*where, "--input", topic, "--available-now"])

    def run() -> Counter[bytes | None]:
        program.run(spark, given, threading.Event())
        return Counter(clients.read_all(servers, output))

    put(servers, topic, orders(range(10)))
    assert run() == results(range(10))
    put(servers, topic, orders(range(10, 15)))
    for _ in range(2):  # the second one finds nothing left to do
        subprocess.run([sys.executable, str(EXAMPLES / "reset.py"), *where], check=True)
        assert not checkpoint.exists()
        assert clients.read_all(servers, output) == []
    assert run() == results(range(15))
    put(servers, topic, orders(range(15, 20)))
    assert run() == results(range(20))
