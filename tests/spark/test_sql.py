"""Statements of SQL over `format("txn")`: views, tables of the catalog, and inserts."""

from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import SparkSession

from spark.jobs import put, texts

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas"),
]


def listed(servers: str, **options: str) -> str:
    given = {"kafka.bootstrap.servers": servers, **options}
    return ", ".join(f"`{name}` '{text}'" for name, text in given.items())


def test_view_is_read_and_takes_rows(spark: SparkSession, servers: str, topic: str) -> None:
    put(servers, topic, ["1"])
    options = listed(servers, subscribe=topic, topic=topic)
    spark.sql(f"CREATE OR REPLACE TEMP VIEW fruits USING txn OPTIONS ({options})")
    spark.sql("INSERT INTO fruits (value) SELECT binary('2')")
    found = spark.sql("SELECT string(value) AS value FROM fruits").collect()
    assert sorted(row.value for row in found) == ["1", "2"]
    with pytest.raises(AnalysisException, match="a topic cannot be overwritten"):
        spark.sql("INSERT OVERWRITE fruits (value) SELECT binary('3')")


def test_table_whose_options_would_be_lost_is_refused(
    spark: SparkSession, servers: str, topic: str
) -> None:
    """The error was of an unknown option `provider`, which is Spark's own."""
    options = listed(servers, subscribe=topic)
    with pytest.raises(AnalysisException, match=r"this is CREATE TABLE, .* CREATE TEMP VIEW"):
        spark.sql(f"CREATE TABLE lost USING txn OPTIONS ({options})")


def test_table_with_columns_takes_its_options_from_the_statement(
    spark: SparkSession, servers: str, topic: str, output: str, tmp_path: Path
) -> None:
    put(servers, topic, ["1"])
    name = f"fruits_{topic.replace('-', '_')}"
    place = (tmp_path / "table").as_uri()
    spark.sql(f"CREATE TABLE {name} (value BINARY) USING txn LOCATION '{place}'")
    try:
        for statement in (f"SELECT * FROM {name}", f"INSERT INTO {name} SELECT binary('2')"):
            with pytest.raises(AnalysisException, match=r"keeps none for a table .* TEMP VIEW"):
                spark.sql(statement).collect()
        stream = spark.readStream.table(name).writeStream.format("noop")
        query = stream.option("checkpointLocation", str(tmp_path / "none")).start()
        with pytest.raises(StreamingQueryException, match="keeps none for a table"):
            query.awaitTermination()
        given = f"`kafka.bootstrap.servers` = '{servers}', subscribe = '{topic}'"
        rows = spark.sql(f"SELECT string(value) AS value FROM {name} WITH ({given})").collect()
        assert [row.value for row in rows] == ["1"]
        reader = spark.readStream.option("kafka.bootstrap.servers", servers)
        table = reader.option("subscribe", topic).option("startingOffsets", "earliest").table(name)
        writer = table.writeStream.format("txn").option("kafka.bootstrap.servers", servers)
        writer = writer.option("topic", output).option("checkpointLocation", str(tmp_path / "c"))
        writer.trigger(availableNow=True).start().awaitTermination()
        assert texts(servers, output) == ["1"]
    finally:
        spark.sql(f"DROP TABLE {name}")
