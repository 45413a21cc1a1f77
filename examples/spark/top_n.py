"""Global top-N in two stages: the pages with the most views in each window of ten minutes.

Input `--input`: views such as {"page": "/home", "time": "2026-05-01T10:03:00Z"}.
Output `--output`: {"start": …, "top": [{"page": "/home", "views": 7}, …]}, `--best` pages at most,
under the start of the window as key. Pages with as many views are in the order of their names.

A ranking of all pages of a window by one task grows with the pages. So they are spread over parts
by a hash, and each part is ranked by itself, many at a time. The last stage sees only the best of
each part. A page is in one part, so no page that belongs to the result is left out before.

Append mode: a window comes out once, when the watermark has passed its end, as in `windows.py`.

Exactly once: each window is in the output once, and has each view once that was not late.
"""

from argparse import Namespace

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from job import Program

PARTS = 8
LENGTH = "10 minutes"


def start(spark: SparkSession, given: Namespace) -> StreamingQuery:
    """Start the query."""
    records = (
        spark.readStream.format("txn").options(**given.source).option("subscribe", given.input)
    ).load()
    view = f.from_json(f.col("value").cast("string"), "page string, time timestamp")
    views = records.select(view.alias("view")).select("view.*").withWatermark("time", "10 minutes")
    counts = views.groupBy("page", f.window("time", LENGTH)).agg(f.count("*").alias("views"))

    def best(places: Column) -> Column:
        return f.slice(f.sort_array(places), 1, int(given.best)).alias("places")

    place = f.struct((-f.col("views")).alias("less"), "page")
    window = f.window(f.window_time("window"), LENGTH)
    of_parts = counts.groupBy(window, f.hash("page") % PARTS).agg(best(f.collect_list(place)))
    of_all = of_parts.groupBy(window).agg(best(f.flatten(f.collect_list("places"))))

    top = "transform(places, place -> struct(place.page, -place.less AS views)) AS top"
    return (
        of_all.selectExpr(
            "string(window.start) AS key", f"to_json(struct(window.start, {top})) AS value"
        )
        .writeStream.format("txn")
        .outputMode("append")
        .options(**given.sink)
        .option("topic", given.output)
        .trigger(**given.trigger)
        .start()
    )


PROGRAM = Program(__doc__, start, input="views", output="top-pages", best="3")

if __name__ == "__main__":
    PROGRAM.main()
