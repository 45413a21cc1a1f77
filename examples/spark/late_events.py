"""Late events: counts per window, and a dead-letter topic for events that came too late for theirs.

Input `--input`: readings such as {"sensor": "s1", "time": "2026-05-01T10:03:00Z"}.
Output `--output`: {"sensor": "s1", "until": 1777630200000, "count": 7}, after the watermark.
Output `--late`: the late readings as they were, under the key of their sensor.

Spark's own windows drop late rows. Here the state decides by the watermark, so it sees them all.
The window's end is passed on as a number: Spark filters rows by a column that has a watermark.

Exactly once: each reading is in one count, or in the dead-letter topic once. Both topics are
written by one sink, so they are decided together.
"""

from argparse import Namespace
from collections.abc import Iterator
from typing import Any

from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from job import Program

WINDOW_MS = 600_000


def start(spark: SparkSession, given: Namespace) -> StreamingQuery:
    """Start the query."""
    records = (
        spark.readStream.format("txn").options(**given.source).option("subscribe", given.input)
    ).load()
    reading = f.from_json(f.col("value").cast("string"), "sensor string, time timestamp")
    routed = (
        records.select("value", reading.alias("reading"))
        .select("value", "reading.*")
        .withWatermark("time", "10 minutes")
        .selectExpr(
            "sensor", f"{WINDOW_MS} * (1 + unix_millis(time) DIV {WINDOW_MS}) AS until", "value"
        )
        .groupBy("sensor", "until")
        .transformWithState(
            Windows(given.output, given.late),
            outputStructType="topic string, key string, value binary",
            outputMode="Append",
            timeMode="EventTime",
        )
    )
    writer = routed.writeStream.format("txn").outputMode("append").options(**given.sink)
    return writer.trigger(**given.trigger).start()


class Windows(StatefulProcessor):
    """Counts the readings of one sensor in one window until its end has passed."""

    def __init__(self, counts: str, late: str) -> None:
        self.counts, self.late = counts, late

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state."""
        self.handle = handle
        self.count = handle.getValueState("count", "count bigint")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        """Count the readings, or pass them on as late."""
        sensor, until = key
        if until <= timerValues.getCurrentWatermarkInMs():
            yield from (Row(topic=self.late, key=sensor, value=row.value) for row in rows)
            return
        before = self.count.get() if self.count.exists() else None
        self.count.update(((before[0] if before else 0) + sum(1 for _ in rows),))
        self.handle.registerTimer(until)

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[Row]:
        """The window has passed: tell its count, and forget it."""
        sensor, until = key
        (count,) = self.count.get() or (0,)
        self.count.clear()
        value = f'{{"sensor":"{sensor}","until":{until},"count":{count}}}'
        yield Row(topic=self.counts, key=sensor, value=value.encode())

    def close(self) -> None:
        """Nothing is held."""


PROGRAM = Program(
    __doc__, start, input="readings", output="readings-per-window", late="late-readings"
)

if __name__ == "__main__":
    PROGRAM.main()
