"""Totals in a database: the orders and cents of each customer, in a table of PostgreSQL.

Input `--input`: orders such as {"customer": "c1", "cents": 1250}.
Output `--table` in `--database`: customer, orders, cents; and `spark_progress` with a row for it.

A total has no record of its own to be a key. So the changes of a batch and its number are written
in one transaction of the database. A batch that comes again finds its number, and changes nothing.

Exactly once: each order is in its total once, and a batch is in all totals or in none. The number
belongs to the checkpoint. With a new one the query would begin at batch 0 and be taken for done, so
that is refused.

It needs the package `psycopg`.
"""

from argparse import Namespace
from collections.abc import Sequence

import psycopg
from psycopg.sql import SQL, Identifier
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from job import Program
from txn.errors import ConfigError

TABLE = SQL(
    "CREATE TABLE IF NOT EXISTS {} (customer text PRIMARY KEY, orders bigint, cents bigint)"
)
PROGRESS = (
    "CREATE TABLE IF NOT EXISTS spark_progress (target text PRIMARY KEY, query text, batch bigint)"
)
ADD = SQL(
    """INSERT INTO {} AS known VALUES (%s, %s, %s) ON CONFLICT (customer) DO UPDATE
        SET orders = known.orders + excluded.orders, cents = known.cents + excluded.cents"""
)


def start(spark: SparkSession, given: Namespace) -> StreamingQuery:
    """Start the query."""
    with psycopg.connect(given.database) as connection:
        connection.execute(TABLE.format(Identifier(given.table)))
        connection.execute(PROGRESS)
    records = (
        spark.readStream.format("txn").options(**given.source).option("subscribe", given.input)
    ).load()
    order = f.from_json(f.col("value").cast("string"), "customer string, cents bigint")

    def write(batch: DataFrame, batch_id: int) -> None:
        # Also for a batch that is in the table already: state of Spark's would need its run.
        orders = batch.select(order.alias("order")).select("order.*").groupBy("customer")
        changes = orders.agg(f.count("*"), f.sum("cents")).collect()
        query = spark.sparkContext.getLocalProperty("sql.streaming.queryId")
        assert query is not None, "this is a micro-batch"
        with psycopg.connect(given.database) as connection:
            add(connection, given.table, query, batch_id, changes)

    return (
        records.writeStream.foreachBatch(write)
        .option("checkpointLocation", given.checkpoint)
        .trigger(**given.trigger)
        .start()
    )


def add(
    connection: psycopg.Connection,
    table: str,
    query: str,
    batch: int,
    changes: Sequence[tuple[str, int, int]],
) -> None:
    """Add a batch to the totals, unless they have it; the caller commits.

    Raises:
        ConfigError: the totals are those of another query.
    """
    # The row stays locked until the commit. So a driver that was taken for dead adds nothing, too.
    connection.execute(
        "INSERT INTO spark_progress VALUES (%s, %s, -1) ON CONFLICT DO NOTHING", (table, query)
    )
    known = connection.execute(
        "SELECT query, batch FROM spark_progress WHERE target = %s FOR UPDATE", (table,)
    ).fetchone()
    assert known is not None
    if known[0] != query:
        raise ConfigError(
            f"the table {table} has batches 0 to {known[1]} of query {known[0]}, and this is "
            f"{query}. Use its checkpoint again, or a new table with a new checkpoint"
        )
    if batch <= known[1]:
        return
    with connection.cursor() as cursor:
        cursor.executemany(ADD.format(Identifier(table)), changes)
        cursor.execute("UPDATE spark_progress SET batch = %s WHERE target = %s", (batch, table))


PROGRAM = Program(
    __doc__,
    start,
    input="orders",
    database="postgresql://127.0.0.1/postgres",
    table="totals",
)

if __name__ == "__main__":
    PROGRAM.main()
