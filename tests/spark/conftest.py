"""One Spark session and one broker for all Spark tests."""

import os
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark.sessions import session
from support import clients
from support.brokers import BrokerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A txn broker; `TXN_SPARK_BOOTSTRAP` names another cluster to run the same tests against."""
    running = os.environ.get("TXN_SPARK_BOOTSTRAP")
    if running:
        yield running
        return
    broker = BrokerProcess(tmp_path_factory.mktemp("broker") / "data")
    yield broker.bootstrap_servers
    broker.stop()


@pytest.fixture(scope="session")
def spark() -> Iterator["SparkSession"]:
    """A small session, as the product's documentation asks for: `local[2,4]`."""
    import txn.spark

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
        from pyspark.sql import functions as _functions  # noqa: F401 (warns at its import)

    settings = {
        "spark.jars": ",".join(connector_jars()),
        "spark.app.name": "txn-tests",
        "spark.sql.session.timeZone": "UTC",
    }
    running = session(settings, log_level="OFF")
    txn.spark.register(running)
    yield running
    running.stop()


def connector_jars() -> list[str]:
    """Spark's own Kafka connector, to be compared with; empty where it cannot be had."""
    from txn.spark import jars
    from txn.spark.connector_jars import JarsUnavailableError

    try:
        return jars()
    except JarsUnavailableError:
        return []


@pytest.fixture
def topic(servers: str) -> str:
    """A new topic with two partitions."""
    name = f"topic-{time.time_ns()}"
    clients.create_topic(servers, name, 2)
    return name


@pytest.fixture
def output(servers: str) -> str:
    """Another one, to write to."""
    name = f"output-{time.time_ns()}"
    clients.create_topic(servers, name, 2)
    return name


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return tmp_path / "checkpoint"
