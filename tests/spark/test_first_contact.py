"""Wrong servers are told at the start; a query that runs waits for its cluster."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from harnesses.peers.kafka import free_port
from support import clients
from support.brokers import BrokerProcess
from txn.errors import ConfigError, UnreachableError
from txn.spark import first_contact, options, writer
from txn.spark.errors import is_hopeless, is_outage
from txn.spark.stream_reader import StreamReader

pytestmark = pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas")

NOWHERE = "nowhere.invalid:9092"


def reading(servers: str, topic: str = "t") -> options.SourceSettings:
    given = {"kafka.bootstrap.servers": servers, "subscribe": topic}
    return options.source_settings({**given, "startingOffsets": "earliest"})


def stream_of(settings: options.SourceSettings) -> StreamReader:
    from pyspark.sql.types import BinaryType, StructField, StructType

    return StreamReader(settings, StructType([StructField("value", BinaryType())]))


@contextmanager
def http_server() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_servers_that_refuse_and_names_that_are_none_are_told_each_with_its_fault() -> None:
    """The error came after three minutes, and had one of the servers."""
    closed = f"127.0.0.1:{free_port()}"
    with pytest.raises(UnreachableError) as raised:
        stream_of(reading(f"{closed},{NOWHERE}")).initialOffset()
    assert list(raised.value.reasons or ()) == [closed, NOWHERE]
    told = str(raised.value)
    assert f"{closed} refuses connections: nothing listens there; {NOWHERE} does not res" in told
    assert told.endswith("Correct the option, or start the brokers")
    text = f"txn.errors.UnreachableError: {told}"
    assert is_outage(text)
    assert not is_hopeless(text)


@pytest.mark.parametrize(("servers", "told"), [("http://a:1", "is no URL"), ("a:1 b:2", "a space")])
def test_servers_that_cannot_be_read_are_told_with_the_option(servers: str, told: str) -> None:
    """It was a StopIteration."""
    with pytest.raises(ConfigError, match=rf"^kafka\.bootstrap\.servers: .*{told}.*HOST:PORT"):
        stream_of(reading(servers)).initialOffset()


def test_server_that_is_no_broker_is_told_at_the_first_look() -> None:
    with http_server() as servers, pytest.raises(UnreachableError) as raised:
        stream_of(reading(servers)).initialOffset()
    told = str(raised.value)
    assert told.endswith(f"{servers} is an HTTP server, not a broker. Correct the option")


def test_one_server_that_answers_is_enough(servers: str, topic: str) -> None:
    settings = reading(f"127.0.0.1:{free_port()},{servers}", topic)
    assert stream_of(settings).initialOffset()[topic] == {"0": 0, "1": 0}


def test_reader_that_has_met_a_broker_waits_for_it_to_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = BrokerProcess(tmp_path)
    try:
        clients.create_topic(broker.bootstrap_servers, "t")
        reader = stream_of(reading(broker.bootstrap_servers))
        begin = reader.initialOffset()
        broker.kill()
        monkeypatch.setattr(first_contact, "REFUSAL_S", 0.0)  # it would be over at once
        found: list[object] = []
        look = threading.Thread(
            target=lambda: found.append(reader.latestOffset(begin, reader.getDefaultReadLimit()))
        )
        look.start()
        broker.restart()
        look.join(clients.WAIT_S)
        assert found == [begin]
    finally:
        broker.stop()


def test_only_a_stream_without_a_batch_asks_for_its_output_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each batch may be planned by a new process, also in an outage."""
    from pyspark.sql.types import StringType, StructField, StructType

    class MetError(Exception):
        pass

    class AskedError(Exception):
        pass

    def meet(_: options.ClusterAccess) -> None:
        raise MetError

    def ask(_: options.ClusterAccess) -> None:
        raise AskedError

    monkeypatch.setattr(writer, "await_cluster", meet)
    monkeypatch.setattr(writer, "shared_client", ask)
    given = {"kafka.bootstrap.servers": NOWHERE, "topic": "t", "txn.id": "q"}
    settings = options.sink_settings({**given, "checkpointLocation": str(tmp_path)})
    rows = StructType([StructField("value", StringType())])
    with pytest.raises(MetError):
        writer.begin_stream(settings, rows)
    (tmp_path / "commits").mkdir()
    (tmp_path / "commits" / "0").touch()
    with pytest.raises(AskedError):
        writer.begin_stream(settings, rows)
    for batch, error in (("0", MetError), ("1", AskedError)):
        of_a_query = options.sink_settings({**given, "txn.batch": batch, "txn.query": "a"})
        with pytest.raises(error):
            writer.begin_batch(of_a_query, rows)
