"""Starting a query again when it ends by a failure.

Spark ends a query at the first batch that fails: a broker that restarts, a lost executor.
Starting it again is safe, since the sink settles what was open; so somebody should do it.
"""

import logging
import random
import time
from collections.abc import Callable
from typing import Final

from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

from txn.spark.errors import is_fenced, is_hopeless

log = logging.getLogger("txn.spark")

BACKOFF_S: Final = 1.0
BACKOFF_S_MAX: Final = 60.0
HEALTHY_S: Final = 300.0
"""A query that ran this long is started again at once, and its failures are forgotten."""


def run(
    make_query: Callable[[], StreamingQuery],
    *,
    restarts_max: int | None = None,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> None:
    """Keep a query running until it ends on purpose.

    Args:
        make_query: Starts the query and returns it; always with the same checkpoint.
        restarts_max: Give up after this many failures in a row; None: never.
        clock: Seconds.
        pause: Waits for some seconds.

    Returns:
        When the query was stopped, or has read what `trigger(availableNow=True)` asked for.

    Raises:
        StreamingQueryException: the failure is one that starting again cannot help
            (`txn.spark.errors`), or there were too many.
    """
    failures = 0
    was_fenced = False
    while True:
        started = clock()
        try:
            make_query().awaitTermination()
            return
        except StreamingQueryException as error:
            if is_hopeless(str(error)) or (was_fenced and is_fenced(str(error))):
                raise
            was_fenced = is_fenced(str(error))
            failures = 0 if clock() - started > HEALTHY_S else failures
            failures += 1
            if restarts_max is not None and failures > restarts_max:
                raise
            delay_s = _delay_s(failures)
            log.warning(
                "query.restart failures=%s delay_s=%.1f error=%s",
                *(failures, delay_s, _first_line(error)),
            )
            pause(delay_s)


def _delay_s(failures: int) -> float:
    """A growing pause, scattered so that many queries do not come back at the same moment."""
    longest = min(BACKOFF_S * 2.0 ** (failures - 1), BACKOFF_S_MAX)
    return longest * random.uniform(0.5, 1.0)


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
