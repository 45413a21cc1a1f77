"""A client reports that its bootstrap servers are no brokers."""

import http.server
import logging
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Final

import pytest

from txn.client.consumer import Consumer
from txn.client.engine import EngineName
from txn.client.library_log import QUIET_SECONDS, LibraryLog
from txn.client.producer import Producer
from txn.client.reach import (
    SPEAKS_NO_TLS,
    WANTS_TLS,
    AddressFault,
    Reach,
    addresses_in,
    api_keys_of,
    fault_in,
    look,
    mechanisms_of,
)
from txn.client.settings import PROPERTIES, producer_settings, refused
from txn.errors import Action, ConfigError, RejectedError, UnreachableError

REFUSED = AddressFault("refuses connections")
SILENT = AddressFault("does not answer", is_silence=True)
STRANGER = AddressFault("is an HTTP server", is_final=True)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def reach(
    clock: Clock, faults: dict[str, AddressFault | None], patience_s: float = 5.0
) -> tuple[Reach, list[str]]:
    """A `Reach` with addresses of these names, and the list of those it has asked."""
    asked: list[str] = []

    def probe(host: str, _port: int, _has_tls: bool) -> AddressFault | None:
        asked.append(host)
        return faults[host]

    settings = {"bootstrap.servers": ",".join(faults)}
    made = Reach(
        settings,
        "the producer",
        patience_s,
        clock=clock,
        probe=probe,
        ask_mechanisms=lambda *_: [],
    )
    return made, asked


def check_at(clock: Clock, second: float, made: Reach, *, is_over: bool = False) -> None:
    clock.now = second
    made.check(is_over=is_over)


# ---------------------------------------------------------------- when it is told


def test_a_certain_mistake_gives_up_and_names_the_setting() -> None:
    clock = Clock()
    made, _ = reach(clock, {"a": WANTS_TLS, "b": WANTS_TLS})
    with pytest.raises(UnreachableError, match=r"Correct security\.protocol\n") as told:
        check_at(clock, 1, made)
    assert told.value.action is Action.GIVE_UP


@pytest.mark.parametrize(
    ("refusal", "remedy"),
    [
        ("Broker: Request not valid in current SASL state", "This listener takes no log-ins"),
        ("Broker: Unsupported SASL mechanism", r"Set sasl\.mechanism to one that the listener"),
        ("Invalid username or password", "Correct its credentials"),
    ],
)
def test_a_refusal_is_told_with_the_setting_to_correct(refusal: str, remedy: str) -> None:
    made, _ = reach(Clock(), {"a": None})
    made.refuse(refusal)
    with pytest.raises(RejectedError, match=remedy):
        made.check()


@pytest.mark.parametrize(
    ("protocol", "keys", "is_refused"),
    [
        ("consumer", {18, 68}, False),
        ("consumer", {18}, True),
        ("consumer", set(), False),  # it tells nobody in this way
        ("classic", {18}, False),
    ],
)
def test_groups_that_the_broker_does_not_serve_are_refused_each_time(
    protocol: str, keys: set[int], is_refused: bool
) -> None:
    clock = Clock()
    made = Reach(
        {"bootstrap.servers": "a", "group.protocol": protocol},
        "the consumer",
        5,
        clock=clock,
        probe=lambda *_: None,
        ask_api_keys=lambda *_: frozenset(keys),
        ask_mechanisms=lambda *_: [],
    )
    for second in (1, 2.1):
        with pytest.raises(RejectedError, match="KIP-848") if is_refused else nullcontext():
            check_at(clock, second, made)
    assert made.is_answered is not is_refused


def test_the_requests_of_a_broker_are_read_from_its_answer() -> None:
    answer = struct.pack(">iihi", 22, 0, 0, 2) + struct.pack(">6h", 18, 0, 4, 68, 0, 1)
    with listening(answering(answer)) as port:
        assert api_keys_of("127.0.0.1", port, False) == {18, 68}
    for broken in (b"", answer[:-1], struct.pack(">iihi", 10, 0, 35, 2)):
        with listening(answering(broken)) as port:
            assert api_keys_of("127.0.0.1", port, False) == frozenset()


def framed(body: bytes) -> bytes:
    """An answer with its size and a correlation id of 0."""
    return struct.pack(">ii", 4 + len(body), 0) + body


@pytest.mark.parametrize(
    ("answer", "mechanisms"),
    [
        (framed(struct.pack(">hih", 33, 1, 5) + b"PLAIN"), ["PLAIN"]),
        (framed(struct.pack(">hih", 33, 1, 5) + b"\x1b[31m"), ["\\x1b[31m"]),  # a stranger's text
        (framed(struct.pack(">hih", 33, 2, 5) + b"PLAIN"), []),  # cut short
        (framed(struct.pack(">hi", 34, 0)), []),  # a listener without SASL
        (b"\0", []),
    ],
)
def test_the_mechanisms_of_a_listener_are_read_from_its_answer(
    answer: bytes, mechanisms: list[str]
) -> None:
    with listening(answering(answer)) as port:
        assert mechanisms_of("127.0.0.1", port, False) == mechanisms


def test_nothing_is_asked_in_the_first_moment() -> None:
    clock = Clock()
    made, asked = reach(clock, {"a": REFUSED})
    check_at(clock, 0.5, made)
    assert asked == []


def test_addresses_that_refuse_are_waited_for_until_the_patience_is_over() -> None:
    clock = Clock()
    made, _ = reach(clock, {"a": REFUSED, "b": REFUSED})
    for second in (1, 2.1, 3.2, 4.3):
        check_at(clock, second, made)
    with pytest.raises(UnreachableError) as told:
        check_at(clock, 5.4, made)
    assert told.value.reasons == {"a:9092": REFUSED.what, "b:9092": REFUSED.what}
    assert told.value.address == "a:9092"
    assert str(told.value) == (
        "the producer reaches no broker: a:9092 refuses connections; b:9092 refuses connections. "
        "Correct bootstrap.servers, or start the broker. For a cluster that may come later, give "
        "connect_timeout more than 5 s"
    )


def test_a_stranger_is_told_of_at_once() -> None:
    clock = Clock()
    made, _ = reach(clock, {"a": STRANGER})
    with pytest.raises(UnreachableError, match=r"an HTTP server\. Correct bootstrap.servers\n"):
        check_at(clock, 1, made)


def test_a_stranger_beside_a_closed_port_is_waited_with_for() -> None:
    clock = Clock()
    made, _ = reach(clock, {"a": STRANGER, "b": REFUSED})
    check_at(clock, 1, made)
    with pytest.raises(UnreachableError):
        check_at(clock, 6, made)


def test_silence_is_waited_for_until_the_caller_waits_no_longer() -> None:
    clock = Clock()
    made, _ = reach(clock, {"a": SILENT, "b": REFUSED})
    check_at(clock, 50, made)
    with pytest.raises(UnreachableError, match="a:9092 does not answer"):
        check_at(clock, 60, made, is_over=True)


def test_one_broker_that_answered_is_enough_for_ever() -> None:
    clock = Clock()
    faults: dict[str, AddressFault | None] = {"a": REFUSED, "b": None}
    made, asked = reach(clock, faults)
    check_at(clock, 1, made)
    faults["b"] = REFUSED  # it restarts, which is librdkafka's to wait for
    check_at(clock, 100, made, is_over=True)
    assert asked == ["a", "b"]


def test_a_client_that_was_answered_asks_nothing_itself() -> None:
    clock = Clock()
    made, asked = reach(clock, {"a": REFUSED})
    made.prove()
    check_at(clock, 100, made, is_over=True)
    assert asked == []


def test_patience_without_end_waits_without_end() -> None:
    clock = Clock()
    made, _ = reach(clock, {"a": REFUSED}, patience_s=float("inf"))
    check_at(clock, 1e6, made)


@pytest.mark.parametrize(
    ("servers", "addresses"),
    [
        ("a:1", [("a", 1)]),
        ("a, b:2", [("a", 9092), ("b", 2)]),
        ("SASL_SSL://a:1,PLAINTEXT://b", [("a", 1), ("b", 9092)]),
        ("[::1]:9093", [("::1", 9093)]),
        ("", []),
    ],
)
def test_addresses_are_read_as_librdkafka_reads_them(
    servers: str, addresses: list[tuple[str, int]]
) -> None:
    assert addresses_in(servers) == addresses


@pytest.mark.parametrize(
    ("servers", "told"),
    [
        ("http://h:9092", "'http://h:9092' begins with http://, and a broker's address is no URL"),
        ("a:1,https://h:1", "begins with https://"),
        ("SSL://h:1", "security.protocol is plaintext: leave the scheme out, and set"),
        ("a:1 b:2", "has a space in it: write HOST:PORT, and a comma between two"),
        (" ", "names no broker"),
        (",", "names no broker"),
        (":9092", "is no HOST:PORT"),
        ("h:x", "is no HOST:PORT"),
        ("h:-1", "is no HOST:PORT"),
        ("h:1/topic", "is no HOST:PORT"),
        ("h:0", "has port 0, and ports go from 1 to 65535"),
        ("h:65536", "has port 65536"),
        ("::1", "without brackets: write '[::1]:9092'"),
        ("fe80::1:9092", "without brackets"),
    ],
)
@pytest.mark.parametrize("client", [Producer, Consumer])
def test_an_address_that_cannot_be_read_is_refused_at_once(
    client: Callable[..., object], servers: str, told: str
) -> None:
    """It took 60 s and was called retriable; a consumer waited for ever and said nothing."""
    more = {"group_id": "g"} if client is Consumer else {"transactional_id": "t"}
    with pytest.raises(ConfigError) as raised:
        client(bootstrap_servers=servers, **more)
    assert told.removeprefix("'") in str(raised.value)
    assert raised.value.property == "bootstrap.servers"


@pytest.mark.parametrize(
    "servers",
    [
        "h",
        "h:9092",
        " a:1 ,, b:2,",
        "PLAINTEXT://a:1",
        "plaintext://a:1,b:2",
        "[::1]:9092",
        "a_b.c-d:1/",
    ],
)
def test_an_address_that_librdkafka_reads_is_taken(servers: str, engine: EngineName) -> None:
    Consumer(bootstrap_servers=servers, group_id="g", engine=engine).close()
    Producer(bootstrap_servers=servers, engine=engine).close()


def test_a_scheme_that_is_the_security_protocol_is_taken() -> None:
    assert fault_in("SASL_SSL://h:1", "sasl_ssl") is None
    assert fault_in("SSL://h:1") is None


# ---------------------------------------------------------------- what is seen at an address


@contextmanager
def listening(*answers: Callable[[socket.socket], object]) -> Iterator[int]:
    """The port of a server that gives each client one of these answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            for answer in answers:
                connection, _ = server.accept()
                with connection:
                    answer(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1]
        thread.join()


def until_closed(connection: socket.socket) -> None:
    while connection.recv(1024):
        pass


def answering(data: bytes) -> Callable[[socket.socket], object]:
    def answer(connection: socket.socket) -> None:
        connection.recv(1024)
        connection.sendall(data)

    return answer


def test_a_port_where_nothing_listens_refuses() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert look("127.0.0.1", port, False) == AddressFault(
        "refuses connections: nothing listens there"
    )


def test_a_name_that_does_not_resolve_is_told_with_the_reason() -> None:
    fault = look("no-such-host.invalid", 9092, False)
    assert fault is not None
    assert fault.what.startswith("does not resolve (")


@pytest.mark.parametrize(
    ("answer", "what"),
    [
        (answering(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "is an HTTP server, not a broker"),
        (answering(b"\x15\x03\x01\x00\x02\x02\x46"), "wants TLS: set security.protocol to ssl"),
        (answering(b"SSH-2.0-OpenSSH_9.6\r\n"), "answers b'SSH-2.0-Open', which no broker does"),
        (answering(b""), "closes the connection when spoken to as a broker"),
        (until_closed, "accepts connections and answers nothing"),
    ],
)
def test_strangers_are_told_apart(answer: Callable[[socket.socket], object], what: str) -> None:
    with listening(answer) as port:
        fault = look("127.0.0.1", port, False)
    assert fault is not None
    assert fault.what.startswith(what)


def test_a_web_server_that_waits_for_a_line_is_made_to_answer() -> None:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        fault = look("127.0.0.1", server.server_port, False)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert fault == AddressFault("is an HTTP server, not a broker", is_final=True)


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


def test_a_plain_listener_is_told_to_a_client_that_speaks_tls() -> None:
    with listening(answering(b"\0\0\0\4nope")) as port:
        fault = look("127.0.0.1", port, True)
    assert fault == SPEAKS_NO_TLS


BROKER: Final = answering(struct.pack(">iihi6x", 16, 0, 0, 1))


@pytest.mark.parametrize("refuses", [answering(b""), until_closed], ids=["closes", "waits"])
def test_a_plain_listener_that_says_nothing_to_tls_is_asked_in_plain(
    refuses: Callable[[socket.socket], object],
) -> None:
    """A plain broker reads a size out of the greeting, and closes or waits for that much."""
    with listening(refuses, BROKER) as port:
        assert look("127.0.0.1", port, True) == SPEAKS_NO_TLS


def test_a_listener_of_tls_that_closes_on_plain_bytes_is_asked_in_tls() -> None:
    with listening(answering(b""), refuse_in_tls) as port:
        assert look("127.0.0.1", port, False) == WANTS_TLS


@pytest.mark.parametrize("has_tls", [True, False])
def test_a_listener_that_closes_whatever_it_hears_may_be_overloaded(has_tls: bool) -> None:
    with listening(answering(b""), answering(b"")) as port:
        fault = look("127.0.0.1", port, has_tls)
    assert fault is not None
    assert not fault.is_final
    assert fault.what.endswith("check security.protocol")


def refuse_in_tls(connection: socket.socket) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)  # without a certificate
    with pytest.raises(ssl.SSLError):
        context.wrap_socket(connection, server_side=True)


def test_a_listener_of_tls_is_librdkafkas_to_verify() -> None:
    with listening(refuse_in_tls) as port:
        assert look("127.0.0.1", port, True) is None


# ---------------------------------------------------------------- log lines


def test_lines_of_librdkafka_that_differ_in_numbers_go_out_once_in_a_while(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = Clock()
    lines = LibraryLog(clock=clock)
    with caplog.at_level(logging.INFO, "txn.client"):
        for after_ms in range(100):
            text = f"h:1: Connect failed (after {after_ms}ms)"
            lines.log(logging.ERROR, "%s [%s] %s", "FAIL", "rdkafka#producer-1", text)
        lines.log(
            logging.WARNING, "%s [%s] %s", "GETSUBSCRIPTIONS", "rdkafka#producer-1", "another"
        )
        clock.now = QUIET_SECONDS
        lines.log(
            logging.ERROR,
            "%s [%s] %s",
            "FAIL",
            "rdkafka#producer-1",
            "h:1: Connect failed (after 7ms)",
        )
    assert caplog.messages == [
        "FAIL [rdkafka#producer-1] h:1: Connect failed (after 0ms)",
        "GETSUBSCRIPTIONS [rdkafka#producer-1] another",
        "FAIL [rdkafka#producer-1] h:1: Connect failed (after 7ms) (and 99 more like this)",
    ]
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING", "ERROR"]


# ---------------------------------------------------------------- properties


@pytest.mark.parametrize("name", sorted(PROPERTIES - {"logger"}))
def test_every_property_that_is_suggested_is_one_of_librdkafkas(name: str) -> None:
    import confluent_kafka

    for make in (confluent_kafka.Producer, confluent_kafka.Consumer):
        said = "none"
        try:
            make({"group.id": "g", name: "\x01"})
        except (confluent_kafka.KafkaException, TypeError, ValueError) as error:
            said = str(error)
        if "No such configuration property" not in said:
            return
    pytest.fail(f"librdkafka does not know {name}")


@pytest.mark.parametrize(
    ("mistaken", "hint"),
    [
        ("linger_ms", "; did you mean linger.ms?"),
        ("bootstrap.server", "; did you mean bootstrap.servers?"),
        ("auto.ofset.reset", "; did you mean auto.offset.reset?"),
        ("colour", ""),
    ],
)
def test_an_unknown_property_is_named_with_a_close_one_only(mistaken: str, hint: str) -> None:
    import confluent_kafka

    with pytest.raises(confluent_kafka.KafkaException) as raised:
        confluent_kafka.Producer({mistaken: "1"})
    error = refused("the producer", raised.value, {mistaken: "1"})
    assert str(error) == f"the producer knows no property {mistaken!r}{hint}"
    assert error.property == mistaken


def test_an_address_in_place_of_the_configuration_is_refused_by_type() -> None:
    with pytest.raises(TypeError, match="bootstrap_servers='HOST:PORT'"):
        producer_settings(
            "127.0.0.1:9092",  # type: ignore[arg-type]
            transactional_id=None,
            bootstrap_servers=None,
            keywords={},
        )
