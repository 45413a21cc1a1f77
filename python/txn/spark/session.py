"""Registers the source and the sink with a Spark session."""

import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from pyspark.errors import SparkNoSuchElementException
from pyspark.sql import SparkSession

from txn.errors import ConfigError
from txn.spark.datasource import TxnDataSource, with_tokens
from txn.spark.logs import log
from txn.spark.noted_start import check_noted_starts
from txn.spark.save_mode import append_by_default
from txn.spark.tokens import add, registered

ARROW_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
ARROW_ROWS_ADVISED = 65_536

REDACTION = "spark.sql.redaction.options.regex"
KEYS_HIDDEN = (
    r"(?i)(?:ssl\.key\.pem|ssl\.keystore\.key$|jaas\.config|oauthbearer\.config"
    r"|oauthbearer\.assertion\.private)"
)
"""The secret options that Spark's own expression (`secret|password|token|...`) does not match.

It holds none of those words: Spark Connect does not tell a setting whose value holds one.
"""


def register(spark: SparkSession, *, tokens: Mapping[str, Callable[[], str]] | None = None) -> None:
    """Make `format("txn")` known to a session.

    Spark also finds it by itself, by the module `pyspark_txn`. This call adds four things:

    - the functions that the option `txn.token` may name
    - an immediate error for a session whose Python workers cannot find txn
    - the redaction of every secret in plans and in the UI (`spark.sql.redaction.options.regex`)
    - `df.write.format("txn").save()` without a mode, which appends as with `format("kafka")`
    - the start of `format("kafka")` for a query whose checkpoint has that and no batch

    Args:
        spark: The session.
        tokens: Functions that take nothing and return a token for OAUTHBEARER, by the names that
            `txn.token` gives them. One is loaded once per process, on driver and workers, and
            called for every connection that logs in. Names of earlier calls stay.

    Raises:
        ConfigError: the session was made in a way that its Python workers cannot find txn; or a
            function for tokens cannot be called or sent.
    """
    _check_python(spark)
    add(tokens or {})
    _hide_keys(spark)
    append_by_default(spark)
    check_noted_starts(spark)
    arrow_rows = int(spark.conf.get(ARROW_ROWS) or "0")
    if arrow_rows <= 0:
        log.warning(
            "session.advice %s=%s: Spark takes it for endless elsewhere, and refuses to read a "
            "source in Python with it. Set it to %s",
            *(ARROW_ROWS, arrow_rows, ARROW_ROWS_ADVISED),
        )
    elif arrow_rows < ARROW_ROWS_ADVISED:
        log.info(
            "session.advice %s=%s: writing is faster with %s",
            *(ARROW_ROWS, arrow_rows, ARROW_ROWS_ADVISED),
        )
    if registered:
        spark.dataSource.register(with_tokens(registered))
    elif not _is_known(spark):
        spark.dataSource.register(TxnDataSource)


def activate() -> None:
    """Give this thread the active session, if it has none.

    Spark looks a data source in Python up in the active session. A new thread of a program has
    none, and `start()` would not find `txn` there, as it finds Spark's own sources.
    """
    try:
        session = SparkSession._instantiatedSession
        if session is not None and SparkSession.getActiveSession() is None:
            sessions = SparkSession._get_j_spark_session_class(session._jvm)
            sessions.setActiveSession(session._jsparkSession)
    except Exception as error:  # Connect, or a Spark whose inner names differ
        log.debug("session.not_activated reason: %s", error)


def _hide_keys(spark: SparkSession) -> None:
    try:
        known = spark.conf.get(REDACTION)  # by default an expression of Spark, which has to stay
    except SparkNoSuchElementException:  # it holds a word like `password`, on Connect
        log.warning(
            "session.redaction %s: Spark Connect does not tell its value, so it was left as it "
            "is; add |%s to it, so that plans show no secrets",
            *(REDACTION, KEYS_HIDDEN),
        )
        return
    if KEYS_HIDDEN not in (known or ""):
        spark.conf.set(REDACTION, f"{known}|{KEYS_HIDDEN}" if known else KEYS_HIDDEN)


def _check_python(spark: SparkSession) -> None:
    try:
        chosen = spark.sparkContext.pythonExec
    except Exception:  # Connect has no SparkContext; its server chose
        return
    path = shutil.which(chosen)
    if chosen == "python3" and (path is None or not _is_this_interpreter(Path(path))):
        raise ConfigError(
            f"this session starts Python workers as {chosen!r}, which is {path or 'not there'} "
            f"and not {sys.executable}, so they cannot find txn. Import txn.spark before the "
            "session is made, or set PYSPARK_PYTHON",
            python=path,
        )


def _is_known(spark: SparkSession) -> bool:
    """Return True if Spark has found it; to register it again would be logged as a replacement."""
    try:
        manager = spark._jsparkSession.sessionState().dataSourceManager()
        return bool(manager.dataSourceExists(TxnDataSource.name()))
    except Exception:  # Connect, or a Spark whose inner names differ
        return False


def _is_this_interpreter(python: Path) -> bool:
    # The directory names the environment. Not `samefile`: a virtual environment's python is a link
    # to one that has other packages. Not the whole path: `bin` has `python3` beside `python`.
    return python.absolute().parent == Path(sys.executable).absolute().parent
