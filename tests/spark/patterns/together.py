"""Several programs of `examples/spark/` as queries of one session: `together.py PLAN`.

The plan is JSON, the arguments of each program by its name. A Spark session costs some ten seconds
of CPU, so tests share one. `--stock` puts Spark's own sink in the place of txn's.
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

import txn.spark  # noqa: E402 (before Spark)


def main() -> None:
    """Run them until SIGTERM, or until one fails."""
    began = time.monotonic()
    plan: dict[str, list[str]] = json.loads(Path(sys.argv[1]).read_text())
    programs = {name: import_module(name).PROGRAM for name in plan}
    given = {name: program.given(plan[name]) for name, program in programs.items()}
    settings = dict(next(iter(given.values())).conf)
    if "--stock" in sys.argv:
        settings["spark.jars"] = ",".join(txn.spark.jars())
        _write_with_spark()
    spark = import_module("job").session(settings)
    print(f"session after {time.monotonic() - began:.1f} s", flush=True)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    with ThreadPoolExecutor(len(programs)) as threads:
        running = [
            threads.submit(_until, stop, programs[name].run, spark, given[name])
            for name in programs
        ]
    for each in running:
        each.result()
    spark.stop()


def _until(stop: threading.Event, run: Callable[..., None], spark: Any, given: Any) -> None:
    try:
        run(spark, given, stop)
    finally:
        stop.set()


def _write_with_spark() -> None:
    """Let `writeStream.format("txn")` write by `format("kafka")`, whose replays repeat rows."""
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    own = DataStreamWriter.format
    DataStreamWriter.format = lambda self, source: own(self, source.replace("txn", "kafka"))  # type: ignore[method-assign]


if __name__ == "__main__":
    main()
