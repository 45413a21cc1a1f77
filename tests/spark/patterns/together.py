"""Several programs of `examples/spark/` as queries of one session: `together.py PLAN`.

The plan is JSON, a list of names of programs with their arguments. A Spark session costs some ten
seconds of CPU, so tests share one. `--stock` puts Spark's own sink in the place of txn's.
"""

import json
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "spark"
sys.path.insert(0, str(EXAMPLES))

START_S = 30.0

import txn.spark  # noqa: E402 (before Spark)


def main() -> None:
    """Run them until SIGTERM, or until one fails."""
    began = time.monotonic()
    plan: list[tuple[str, list[str]]] = json.loads(Path(sys.argv[1]).read_text())
    programs = [import_module(name).PROGRAM for name, _ in plan]
    given = [program.given(words) for program, (_, words) in zip(programs, plan, strict=True)]
    settings = dict(given[0].conf)
    if "--stock" in sys.argv:
        settings["spark.jars"] = ",".join(txn.spark.jars())
        _write_with_spark()
    spark = import_module("job").session(settings)
    print(f"session after {time.monotonic() - began:.1f} s", flush=True)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    with ThreadPoolExecutor(len(programs)) as threads:
        running = []
        for program, its_own in zip(programs, given, strict=True):
            running.append(threads.submit(_until, stop, program.run, spark, its_own))
            _await_a_look(spark, len(running), stop)
    for each in running:
        each.result()
    spark.stop()


def _until(stop: threading.Event, run: Callable[..., None], spark: Any, given: Any) -> None:
    try:
        run(spark, given, stop)
    finally:
        stop.set()


def _await_a_look(spark: Any, queries: int, stop: threading.Event) -> None:
    """Wait until so many queries have looked at their input, but not for ever.

    Each starts a process for its source, which Spark awaits for ten seconds only. On a busy machine
    several of them at once take longer.
    """
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and not stop.wait(0.1):
        if sum(map(_has_looked, spark.streams.active)) >= queries:
            return


def _has_looked(query: Any) -> bool:
    return query.lastProgress is not None or query.status["message"].startswith("Waiting")


def _write_with_spark() -> None:
    """Let `writeStream.format("txn")` write by `format("kafka")`, whose replays repeat rows."""
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    own = DataStreamWriter.format
    DataStreamWriter.format = lambda self, source: own(self, source.replace("txn", "kafka"))  # type: ignore[method-assign]


if __name__ == "__main__":
    main()
