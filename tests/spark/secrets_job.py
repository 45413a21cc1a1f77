"""A Spark job that leaves everything behind that could show a secret; run as a process of its own.

The last argument is a directory with `options.json` (of `format("txn")`) and `wrong.json` (the
same, and the log-in fails). Left there are: `events/`, `checkpoint/`, `plans.txt` with the plans
and progress, `failures.txt` with the tracebacks of failed jobs, `ui.txt` with pages of the UI.
"""

import json
import sys
import traceback
import urllib.request
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path

import txn.spark

# Spark is imported after txn.spark, which says which Python the workers are.
from pyspark.sql import DataFrame, SparkSession  # isort: skip
from pyspark.sql.streaming.query import StreamingQuery  # isort: skip


def main(place: Path) -> None:
    options = json.loads((place / "options.json").read_text())
    wrong = json.loads((place / "wrong.json").read_text())
    (place / "events").mkdir()
    spark = (
        SparkSession.builder.master("local[2,2]")
        .config("spark.eventLog.enabled", "true")
        .config("spark.eventLog.dir", (place / "events").as_uri())
        .config("spark.eventLog.compress", "false")
        .config("spark.ui.port", "0")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .getOrCreate()
    )
    txn.spark.register(spark)
    apples = spark.sql("SELECT '7 apples' AS value")
    apples.write.format("txn").options(**options, topic="secret-in").mode("append").save()
    reader = spark.readStream.format("txn").options(**options, subscribe="secret-in")
    rows = reader.option("startingOffsets", "earliest").load()
    query = copying(rows, options, place / "checkpoint")
    query.awaitTermination()
    table = spark.read.format("txn").options(**options, subscribe="secret-out").load()
    with (place / "plans.txt").open("w") as plans, redirect_stdout(plans):
        rows.explain(True)
        query.explain(True)
        table.explain(True)
        print(table._jdf.queryExecution().toString(), repr(table), query.lastProgress)
        print("found", [bytes(row.value) for row in table.select("value").collect()])
    failing: list[Callable[[], object]] = [
        lambda: spark.read.format("txn").options(**wrong, subscribe="secret-out").load().count(),
        lambda: apples.write.format("txn").options(**wrong, topic="x").mode("append").save(),
        lambda: copying(rows, wrong, place / "checkpoint-2").awaitTermination(),
    ]
    (place / "failures.txt").write_text("\n".join(map(failure_of, failing)))
    (place / "ui.txt").write_text("\n".join(pages(spark)))
    spark.stop()


def copying(rows: DataFrame, options: dict[str, str], checkpoint: Path) -> StreamingQuery:
    writer = rows.writeStream.format("txn").options(**options, topic="secret-out")
    writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    return writer.start()


def failure_of(job: Callable[[], object]) -> str:
    try:
        job()
    except Exception as error:
        return "".join(traceback.format_exception(error))
    raise AssertionError("the log-in was to fail")


def pages(spark: SparkSession) -> list[str]:
    context = spark.sparkContext
    api = f"/api/v1/applications/{context.applicationId}"
    paths = ["/environment/", "/SQL/", "/StreamingQuery/", "/jobs/", f"{api}/environment"]
    paths += [f"{api}/sql?details=true&planDescription=true&length=100"]
    paths += [f"/SQL/execution/?id={number}" for number in range(3)]
    found = []
    for path in paths:
        with urllib.request.urlopen(f"{context.uiWebUrl}{path}") as answer:
            found.append(f"{path}\n{answer.read().decode()}")
    return found


if __name__ == "__main__":
    main(Path(sys.argv[-1]))
