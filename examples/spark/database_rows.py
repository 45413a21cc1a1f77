"""Rows in a database: each order once, in a table of PostgreSQL.

Input `--input`: orders such as {"customer": "c1", "cents": 1250}.
Output `--table` in `--database`: a row for each, under the key (topic, partition, offset).

Each task inserts its rows in a transaction of its own. A batch that comes again after a crash has
the same records, so it leaves out the rows that are in the table already.

Exactly once: each order is in the table once. After a crash in the middle of a batch some of its
rows are there before the others. The key needs rows that come from one record each; for totals
`database_totals.py` has another way.

It needs the package `psycopg`.
"""

from argparse import Namespace
from collections.abc import Iterable
from functools import partial

import psycopg
from psycopg.sql import SQL, Identifier
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from job import Program

TABLE = SQL(
    """CREATE TABLE IF NOT EXISTS {} (
        topic text, partition int, record_offset bigint, customer text, cents bigint,
        PRIMARY KEY (topic, partition, record_offset)
    )"""
)
INSERT = SQL("INSERT INTO {} VALUES (%s, %s, %s, %s, %s) ON CONFLICT DO NOTHING")


def start(spark: SparkSession, given: Namespace) -> StreamingQuery:
    """Start the query."""
    with psycopg.connect(given.database) as connection:
        connection.execute(TABLE.format(Identifier(given.table)))
    records = (
        spark.readStream.format("txn").options(**given.source).option("subscribe", given.input)
    ).load()
    order = f.from_json(f.col("value").cast("string"), "customer string, cents bigint")
    rows = records.select("topic", "partition", "offset", order.alias("order"))
    insert = partial(insert_rows, given.database, given.table)

    def write(batch: DataFrame, _: int) -> None:
        batch.select("topic", "partition", "offset", "order.*").foreachPartition(insert)

    return (
        rows.writeStream.foreachBatch(write)
        .option("checkpointLocation", given.checkpoint)
        .trigger(**given.trigger)
        .start()
    )


def insert_rows(database: str, table: str, rows: Iterable[Row]) -> None:
    """Insert the rows of a task, all of them or none."""
    with psycopg.connect(database) as connection, connection.cursor() as cursor:
        cursor.executemany(INSERT.format(Identifier(table)), rows)


PROGRAM = Program(
    __doc__,
    start,
    input="orders",
    database="postgresql://127.0.0.1/postgres",
    table="orders",
)

if __name__ == "__main__":
    PROGRAM.main()
