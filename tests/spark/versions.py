"""Which parts of `format("txn")` work with the PySpark that is installed.

    PYTHONPATH=target/pyspark/4.1 python tests/spark/versions.py

Prints a line for each part. Each stream runs its first batch again after Spark has forgotten that
it was committed, and has to write every row once. Exit code 0: the parts that work are those that
`docs/spark.md` promises for this version.
"""

import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import txn
import txn.spark

# Spark is imported after txn.spark, which says which Python the workers are.
import pyspark  # isort: skip
from pyspark.sql import SparkSession  # isort: skip
from pyspark.sql.streaming.query import StreamingQuery  # isort: skip
from pyspark.sql.streaming.readwriter import DataStreamWriter  # isort: skip

from spark.jobs import forget_last_commit, put, table, texts  # isort: skip
from spark.sessions import session  # isort: skip
from support import clients  # isort: skip

PROMISED: Final[Mapping[str, frozenset[str]]] = {
    "4.0": frozenset({"batch read", "batch write", "foreachBatch"}),
    "4.1": frozenset({"batch read", "batch write", "stream write", "foreachBatch"}),
    "4.2": frozenset({"batch read", "batch write", "stream write", "foreachBatch", "stream read"}),
    "4.3": frozenset({"batch read", "batch write", "stream write", "foreachBatch", "stream read"}),
}
"""Minor version of PySpark → the parts that work."""

FRUITS: Final = ["apple", "banana", "cherry"]


class Trial:
    """The parts, each on topics of its own."""

    def __init__(self, spark: SparkSession, servers: str, place: Path) -> None:
        self._spark = spark
        self._servers = servers
        self._access = {"kafka.bootstrap.servers": servers}
        self._place = place
        (place / "lines").mkdir()
        (place / "lines" / "fruits.txt").write_text("\n".join(FRUITS))
        clients.create_topic(servers, "fruits", 2)
        put(servers, "fruits", FRUITS)

    def parts(self) -> dict[str, Callable[[], list[str]]]:
        """Each part's name, and a function that returns the values it has found, sorted."""
        return {
            "batch read": self._batch_read,
            "batch write": self._batch_write,
            "stream write": self._stream_write,
            "foreachBatch": self._foreach_batch,
            "stream read": self._stream_read,
        }

    def _batch_read(self) -> list[str]:
        rows = table(self._spark, self._servers, "fruits").selectExpr("string(value)")
        return sorted(row.value for row in rows.collect())

    def _batch_write(self) -> list[str]:
        rows = self._spark.read.text(str(self._place / "lines"))
        rows.write.format("txn").options(**self._access, topic="batch").save()
        return texts(self._servers, "batch")

    def _stream_write(self) -> list[str]:
        lines = self._spark.readStream.text(str(self._place / "lines"))
        writer = lines.writeStream.format("txn").options(**self._access, topic="stream")
        return self._twice(writer, "stream")

    def _foreach_batch(self) -> list[str]:
        lines = self._spark.readStream.text(str(self._place / "lines"))
        counts = lines.groupBy("value").count().select("value")
        sink = txn.spark.sink(self._servers, "updates", id="updates")
        return self._twice(counts.writeStream.outputMode("update").foreachBatch(sink), "updates")

    def _stream_read(self) -> list[str]:
        reader = self._spark.readStream.format("txn").options(**self._access, subscribe="fruits")
        rows = reader.option("startingOffsets", "earliest").load().select("value")
        writer = rows.writeStream.format("txn").options(**self._access, topic="copies")
        return self._twice(writer, "copies")

    def _twice(self, writer: DataStreamWriter, topic: str) -> list[str]:
        """The output of a query whose first batch runs twice."""
        place = self._place / f"checkpoint-{topic}"

        def start() -> StreamingQuery:
            kept = writer.option("checkpointLocation", str(place))
            return kept.trigger(availableNow=True).start()

        txn.spark.run(start, restarts_max=1)
        forget_last_commit(place)
        txn.spark.run(start, restarts_max=1)
        return texts(self._servers, topic)


def main() -> int:
    spark = session({}, log_level="OFF")
    txn.spark.register(spark)
    minor = ".".join(pyspark.__version__.split(".")[:2])
    working = set()
    with tempfile.TemporaryDirectory() as directory, txn.Broker() as broker:
        trial = Trial(spark, broker.bootstrap_servers, Path(directory))
        for name, part in trial.parts().items():
            told = _told(part)
            print(f"PySpark {pyspark.__version__}  {name:14} {told}", flush=True)
            if told == "works":
                working.add(name)
    spark.stop()
    return 0 if working == PROMISED.get(minor, frozenset()) else 1


def _told(part: Callable[[], list[str]]) -> str:
    """The result of a part: "works", its wrong rows or the reason of its failure."""
    try:
        found = part()
    except Exception as error:  # any way of not working is a result
        lines = [line for line in str(error).splitlines() if "Error: " in line]
        return (lines or str(error).splitlines() or [repr(error)])[0]
    return "works" if found == FRUITS else f"wrong rows: {found}"


if __name__ == "__main__":
    sys.exit(main())
