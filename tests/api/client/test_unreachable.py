"""A wrong address is told in seconds, by a client of its own, as a user meets it.

The story: `txn.Producer` took 60 s, printed 214 lines to standard error, and raised an error that
named neither the server nor the reason.
"""

import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

import txn
from support.certificates import Issuer
from support.clients import WAIT_S
from txn.broker.apis.index import APIS_BY_MODULE
from txn.client.engine import EngineName

QUICK_S = 1.5
"""Patience for these tests; the default is longer."""

PROMPT_S = 20.0
"""It takes a second; this is less than the time-outs of the calls."""


@pytest.fixture
def closed_port() -> Iterator[str]:
    """An address where nothing listens, kept from others by being bound."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{held.getsockname()[1]}"


Use = Callable[[str, float, EngineName], object]


def open_transactional(servers: str, seconds: float, engine: EngineName) -> None:
    txn.Producer(
        bootstrap_servers=servers, transactional_id="pay-3", connect_timeout=seconds, engine=engine
    )


def flush(servers: str, seconds: float, engine: EngineName) -> None:
    producer = txn.Producer(bootstrap_servers=servers, connect_timeout=seconds, engine=engine)
    producer.produce("orders", b"1")
    producer.flush()


def consumer_of(servers: str, seconds: float, engine: EngineName) -> txn.Consumer:
    consumer = txn.Consumer(
        bootstrap_servers=servers, group_id="shop", connect_timeout=seconds, engine=engine
    )
    consumer.subscribe(["orders"])
    return consumer


def poll(servers: str, seconds: float, engine: EngineName) -> None:
    consumer_of(servers, seconds, engine).poll()


def consume(servers: str, seconds: float, engine: EngineName) -> None:
    consumer_of(servers, seconds, engine).consume(10, 60)


@pytest.mark.parametrize("use", [open_transactional, flush, poll, consume])
def test_a_closed_port_is_told_with_the_server_and_the_reason(
    use: Use, engine: EngineName, closed_port: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(txn.UnreachableError) as told:
        use(closed_port, QUICK_S, engine)
    assert f"{closed_port} refuses connections: nothing listens there" in str(told.value)
    assert told.value.address == closed_port
    assert told.value.action is txn.Action.RETRY
    assert closed_port not in capfd.readouterr().err  # clients of other tests may print there


def test_a_program_with_a_wrong_address_ends_within_seconds_and_prints_its_error_alone(
    closed_port: str,
) -> None:
    started = time.monotonic()
    program = (
        f"import txn; txn.Producer(bootstrap_servers={closed_port!r}, transactional_id='pay-3')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )
    assert time.monotonic() - started < 30  # it was 60
    *_, error, page = done.stderr.splitlines()
    assert page == "See: txn docs errors/unreachable"
    assert error.startswith(
        f"txn.errors.UnreachableError: producer 'pay-3' reaches no broker: {closed_port} refuses"
    )
    assert "%3|" not in done.stderr


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Issuer:
    return Issuer(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def secured(issuer: Issuer) -> Iterator[txn.Broker]:
    """A broker with a listener of TLS and a plain one."""
    with txn.Broker(properties=issuer.broker(issuer.issue("broker"))) as broker:
        yield broker


LOGIN = {"sasl.mechanism": "PLAIN", "sasl.username": "ann", "sasl.password": "p"}

HALVES: dict[str, Callable[[dict[str, Any], EngineName], object]] = {
    "transactional producer": lambda way, engine: txn.Producer(
        way, transactional_id="pay-3", engine=engine
    ),
    "producer": lambda way, engine: flush_one(txn.Producer(way, engine=engine)),
    "poll": lambda way, engine: subscribed(way, engine).poll(),
    "short polls": lambda way, engine: poll_shortly(subscribed(way, engine)),
    "consume": lambda way, engine: subscribed(way, engine).consume(10, 60),
}


def flush_one(producer: txn.Producer) -> None:
    producer.produce("orders", b"1")
    producer.flush()


def subscribed(way: dict[str, Any], engine: EngineName = "confluent-kafka") -> txn.Consumer:
    consumer = txn.Consumer(way, group_id="shop", engine=engine)
    consumer.subscribe(["orders"])
    return consumer


def poll_shortly(consumer: txn.Consumer) -> None:
    ends_s = time.monotonic() + WAIT_S
    while time.monotonic() < ends_s:
        consumer.poll(0.1)


@pytest.mark.parametrize("use", HALVES.values(), ids=HALVES.keys())
@pytest.mark.parametrize("logs_in", [True, False])
@pytest.mark.parametrize("has_tls", [True, False])
def test_tls_on_one_side_alone_is_told_with_the_setting(
    use: Callable[[dict[str, Any], EngineName], object],
    engine: EngineName,
    logs_in: bool,
    has_tls: bool,
    secured: txn.Broker,
    issuer: Issuer,
) -> None:
    """A producer waited a minute for "try again after a pause", and `poll` for ever."""
    way = issuer.client() if has_tls else {}
    if logs_in:
        way = {**way, **LOGIN, "security.protocol": "sasl_ssl" if has_tls else "sasl_plaintext"}
    address = secured.listeners["PLAINTEXT" if has_tls else "SSL"]
    said = "speaks no TLS: set security.protocol to pl" if has_tls else "wants TLS: set security.pr"
    began = time.monotonic()
    with pytest.raises(txn.UnreachableError, match=f"reaches no broker: {address} {said}") as told:
        use({**way, "bootstrap.servers": address}, engine)
    assert time.monotonic() - began < PROMPT_S
    assert told.value.action is txn.Action.GIVE_UP
    assert str(told.value).endswith("Correct security.protocol")


@pytest.mark.parametrize("has_tls", [True, False])
def test_a_group_protocol_that_the_broker_does_not_serve_is_refused(
    has_tls: bool, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """librdkafka looks for a broker that serves it for ever, and `poll` returned None."""
    monkeypatch.delitem(cast("dict[str, object]", APIS_BY_MODULE), "consumer_groups")
    with txn.Broker(properties=issuer.broker(issuer.issue("broker"))) as older:
        way = issuer.client() if has_tls else {}
        address = older.listeners["SSL" if has_tls else "PLAINTEXT"]
        consumer = subscribed({**way, "bootstrap.servers": address, "group.protocol": "consumer"})
        for _ in range(2):
            with pytest.raises(txn.RejectedError, match=f"{address} does not serve these groups"):
                consumer.poll(WAIT_S)
        consumer.close()


def test_a_cluster_that_comes_late_is_waited_for_as_long_as_was_asked() -> None:
    brokers: list[txn.Broker] = []
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
    seen_down = threading.Event()

    def start() -> None:
        seen_down.wait()
        brokers.append(txn.Broker(port=port))

    starter = threading.Thread(target=start)
    starter.start()

    def note(_: object) -> None:
        seen_down.set()

    with (
        txn.Producer(
            {"error_cb": note},
            bootstrap_servers=f"127.0.0.1:{port}",
            transactional_id="pay-3",
            connect_timeout=60,
            engine="confluent-kafka",
        ) as producer,
        producer.transaction() as t,
    ):
        t.produce("orders", b"1")
    starter.join()
    brokers[0].close()


def test_a_broker_that_stops_under_a_consumer_is_waited_for(engine: EngineName) -> None:
    with txn.Broker() as broker:
        with txn.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            producer.produce("orders", b"1")  # makes the topic before the consumer asks for it
        consumer = consumer_of(broker.bootstrap_servers, 0, engine)
        consumer.assign([])  # any answer of the group: a broker has answered
        while not consumer._reach.is_answered:
            consumer.poll(0.1)
    assert consumer.poll(1.5) is None
    consumer.close()


def test_a_consumer_of_a_sound_broker_gets_as_many_records_as_it_asked_for(
    engine: EngineName,
) -> None:
    with txn.Broker() as broker:
        servers = broker.bootstrap_servers
        consumer = txn.Consumer(
            bootstrap_servers=servers, group_id="shop", auto_offset_reset="earliest", engine=engine
        )
        with txn.Producer(bootstrap_servers=servers) as producer:
            for number in range(1000):
                producer.produce("orders", b"%d" % number)
        consumer.subscribe(["orders"])
        messages = consumer.consume(1000, 30)
        consumer.close()
    assert [message.value() for message in messages] == [b"%d" % n for n in range(1000)]


def test_ctrl_c_ends_the_wait_for_a_broker_that_does_not_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(WAIT_S)
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        command = [sys.executable, "-m", "txn", "explain", "orders", "--bootstrap", address]
        with (
            subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as asking,
            silent.accept()[0] as connection,
        ):
            connection.recv(1)
            began = time.monotonic()
            asking.send_signal(signal.SIGINT)
            asking.communicate(timeout=WAIT_S)
    assert asking.returncode in (-signal.SIGINT, 128 + signal.SIGINT)
    assert time.monotonic() - began < 5  # it would wait for the answer for 10
