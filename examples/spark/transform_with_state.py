"""State of your own: payments from accounts, accepted while the balance lasts.

Input `--input`: {"id": 7, "account": "a1", "amount": -20}, all of an account in one partition.
Output `--output`: {"id": 7, "accepted": true, "balance": 80} under the key `a1`.

transformWithState keeps the balance of each account, and takes its payments in the input's order.
It needs the package `protobuf`, and RocksDB as state store, which `job.py` sets.

Exactly once: each payment is decided once and counts once in its balance. The state is Spark's
checkpoint, the decision is in the output; a batch that comes again finds both as they were.
"""

import json
from argparse import Namespace
from collections.abc import Iterator
from typing import Any

from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from job import Program


def start(spark: SparkSession, given: Namespace) -> StreamingQuery:
    """Start the query."""
    records = (
        spark.readStream.format("txn").options(**given.source).option("subscribe", given.input)
    ).load()
    payment = f.from_json(f.col("value").cast("string"), "id bigint, account string, amount bigint")
    decisions = (
        records.select("offset", payment.alias("payment"))
        .select("offset", "payment.*")
        .groupBy("account")
        .transformWithState(
            Balance(),
            outputStructType="key string, value string",
            outputMode="Append",
            timeMode="None",
        )
    )
    writer = decisions.writeStream.format("txn").outputMode("append").options(**given.sink)
    return writer.option("topic", given.output).trigger(**given.trigger).start()


class Balance(StatefulProcessor):
    """The balance of one account."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state."""
        self.balance = handle.getValueState("balance", "balance bigint")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        """Decide the payments of a batch, in their order."""
        (balance,) = (self.balance.get() if self.balance.exists() else None) or (0,)
        for row in sorted(rows, key=lambda row: row.offset):
            accepted = balance + row.amount >= 0
            balance += row.amount if accepted else 0
            value = {"id": row.id, "accepted": accepted, "balance": balance}
            yield Row(key=row.account, value=json.dumps(value))
        self.balance.update((balance,))

    def close(self) -> None:
        """Nothing is held."""


PROGRAM = Program(__doc__, start, input="payments", output="decisions")

if __name__ == "__main__":
    PROGRAM.main()
