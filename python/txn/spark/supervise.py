"""`run` starts a query again when it ends with a failure.

Spark ends a query at the first batch that fails, for example if a broker restarts or an executor is
lost. A new start is safe, because the sink settles open transactions.

| a failure | the next step |
|---|---|
| wrong option, no topic, no access, records gone, checkpoint of another query | it is raised |
| another driver took over | one start: it may be this query's own predecessor |
| the cluster does not answer any more | a start, however often |
| anything else | a start, until `restarts_max` in a row have finished no batch |
"""

import random
import threading
import time
from collections.abc import Callable
from typing import Final

from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

from txn.spark.errors import is_fenced, is_hopeless, is_outage, reason_of
from txn.spark.logs import log
from txn.spark.session import activate

BACKOFF_S: Final = 1.0
BACKOFF_S_MAX: Final = 60.0
HEALTHY_S: Final = 300.0
"""A query that ran this long is started again at once, and its failures are forgotten."""

RESTARTS_MAX: Final = 10
"""With the pauses between them, some five minutes."""

STOP_POLL_S: Final = 1
"""The wait of Spark's Python side cannot be ended from elsewhere, so it is cut into pieces."""


def run(
    make_query: Callable[[], StreamingQuery],
    *,
    restarts_max: int | None = RESTARTS_MAX,
    stop: threading.Event | None = None,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> None:
    """Keep a query running until it ends on purpose; log every restart with its reason.

    Args:
        make_query: Starts the query and returns it; always with the same checkpoint.
        restarts_max: How often in a row to start it again without it finishing a batch; None:
            for ever.
        stop: Ends the query when it is set, by a signal handler or another thread. The batch under
            way is aborted, and comes again at the next start.
        clock: Seconds.
        pause: Waits for some seconds.

    Returns:
        When the query was stopped, or has read the records that `trigger(availableNow=True)` asked
        for.

    Raises:
        StreamingQueryException: the failure is one that starting again cannot help
            (`txn.spark.errors`), or there were too many. A note of it has the reason alone.
    """
    activate()
    failures = 0
    was_fenced = has_progressed = False
    while stop is None or not stop.is_set():
        started = clock()
        query = make_query()
        try:
            _await_end(query, stop)
            return
        except StreamingQueryException as error:
            message = str(error)
            if stop is not None and stop.is_set():
                log.info("query.stopped reason: %s", reason_of(message))
                return
            if query.lastProgress is not None or clock() - started > HEALTHY_S:
                failures, has_progressed = 0, True
            if is_hopeless(message):
                _give_up(error, "starting it again cannot help")
            if was_fenced and is_fenced(message):
                _give_up(error, "another driver took over twice")
            was_fenced = is_fenced(message)
            if not (has_progressed and is_outage(message)):
                failures += 1
            if restarts_max is not None and failures > restarts_max:
                _give_up(error, f"{failures} failures in a row without a finished batch")
            delay_s = _delay_s(failures)
            log.warning(
                "query.restart failures=%s delay_s=%.1f reason: %s",
                *(failures, delay_s, reason_of(message)),
            )
            if stop is None:
                pause(delay_s)
            else:
                stop.wait(delay_s)


def _await_end(query: StreamingQuery, stop: threading.Event | None) -> None:
    if stop is None:
        query.awaitTermination()
        return
    while not query.awaitTermination(STOP_POLL_S):
        if stop.is_set():
            query.stop()


def _give_up(error: StreamingQueryException, because: str) -> None:
    """Raise the failure, with the reason where a reader of the traceback looks: at its end."""
    reason = reason_of(str(error))
    log.error("query.given_up %s; reason: %s", because, reason)
    error.add_note(f"txn.spark.run gave up ({because}). The reason: {reason}")
    raise error


def _delay_s(failures: int) -> float:
    """A growing pause, scattered so that many queries do not come back at the same moment."""
    longest = min(BACKOFF_S * 2.0 ** (max(failures, 1) - 1), BACKOFF_S_MAX)
    return longest * random.uniform(0.5, 1.0)
