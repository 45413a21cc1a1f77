"""A broker and a token endpoint that repeat a client's secret in their refusal.

Both engines pass their words on. They stood in the log lines, and a token in the error as well.
"""

import base64
import logging
import struct
import threading
import time
import traceback
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingTCPServer
from typing import Any

import pytest

import txn
from support.clients import WAIT_S
from txn.client.engine import EngineName
from txn.errors import RejectedError

SECRET = "hunter2-hunter2"
TOKEN = "ya29.opaque-token"
HANDSHAKE, VERSIONS, AUTHENTICATE = 17, 18, 36
MODULES = "org.apache.kafka.common.security"
MODULE = f"{MODULES}.plain.PlainLoginModule"
BEARER = f"{MODULES}.oauthbearer.OAuthBearerLoginModule"


class Repeating(StreamRequestHandler):
    """A broker that refuses each log-in in the words that it was sent."""

    def handle(self) -> None:
        while size := self.rfile.read(4):
            request = self.rfile.read(int.from_bytes(size))
            api, version, correlation_id, name_bytes = struct.unpack(">hhih", request[:10])
            sent = request[10 + name_bytes :]
            answer = struct.pack(">i", correlation_id) + self._answer(api, version, sent)
            self.wfile.write(len(answer).to_bytes(4) + answer)

    def _answer(self, api: int, version: int, sent: bytes) -> bytes:
        if api == VERSIONS:
            ranges = ((HANDSHAKE, 1, 1), (VERSIONS, 0, 0), (AUTHENTICATE, 0, 0), (3, 0, 1))
            listed = b"".join(struct.pack(">hhh", *each) for each in ranges)
            return struct.pack(">hi", 0 if version == 0 else 35, len(ranges)) + listed
        if api == HANDSHAKE:
            names = b"".join(len(each).to_bytes(2) + each for each in (b"PLAIN", b"OAUTHBEARER"))
            return struct.pack(">hi", 0, 2) + names
        assert isinstance(self.server, Repeater)
        self.server.received.append(sent)
        words = b"unknown: " + sent[4:].replace(b"\0", b" ").replace(b"\1", b" ")
        return struct.pack(">hh", 58, len(words)) + words + bytes(4)


class Repeater(ThreadingTCPServer):
    """Its clients, which try again and again, are those of one test."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Repeating)
        self.received: list[bytes] = []
        """What log-ins have sent."""


@pytest.fixture
def repeater() -> Iterator[Repeater]:
    with Repeater() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def servers(repeater: Repeater) -> str:
    return f"127.0.0.1:{repeater.server_address[1]}"


WAYS: Mapping[str, Mapping[str, object]] = {
    "librdkafka's names": {
        "sasl.mechanism": "PLAIN",
        "sasl.username": "ann",
        "sasl.password": SECRET,
    },
    "a JAAS line": {
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{MODULE} required username="ann" password="{SECRET}";',
    },
    "a token": {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token": TOKEN},
    "a function": {
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": lambda _: (TOKEN, time.time() + 600),
    },
}


REFUSALS = {"confluent-kafka": r"unknown: .*…", "native": "its text is left out"}


@pytest.mark.parametrize("way", WAYS)
def test_a_refusal_is_told_without_the_secret_that_it_repeats(
    way: str, servers: str, caplog: pytest.LogCaptureFixture, engine: EngineName
) -> None:
    refusal = REFUSALS[engine]
    told: list[str] = []
    settings: dict[str, Any] = {
        **WAYS[way],
        "bootstrap.servers": servers,
        "security.protocol": "SASL_PLAINTEXT",
    }
    of_consumers = settings | {"error_cb": lambda error: told.append(str(error))}
    of_producers = settings if engine == "native" else of_consumers
    with pytest.raises(RejectedError, match=refusal) as of_producer:
        txn.Producer(of_producers, transactional_id="shop", engine=engine)
    consumer = txn.Consumer(of_consumers, group_id="shop", engine=engine)
    consumer.subscribe(["orders"])
    with pytest.raises(RejectedError, match=refusal) as of_consumer:
        consumer.poll(WAIT_S)
    consumer.close()
    shown = [*told, caplog.text]
    for raised in (of_producer, of_consumer):
        shown += [*traceback.format_exception(raised.value), repr(vars(raised.value))]
    assert told
    assert ("unknown: " in caplog.text) is (engine == "confluent-kafka")  # librdkafka's own lines
    assert [text for text in shown if SECRET in text or TOKEN in text] == []


def test_the_extensions_of_a_jaas_line_go_with_the_token(
    repeater: Repeater, servers: str, tmp_path: Path, engine: EngineName
) -> None:
    """The native engine left them out, since librdkafka gets them from a callback."""
    token = tmp_path / "token"
    token.write_text("a.b.c")
    settings = {
        "bootstrap.servers": servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": token.as_uri(),
        "sasl.jaas.config": f'{BEARER} required extension_x="1,trace=2";',
    }
    with pytest.raises(RejectedError, match=r"refused|unknown"):
        txn.Producer(settings, transactional_id="shop", engine=engine)
    assert repeater.received
    assert all(b"\1x=1,trace=2\1" in each for each in repeater.received)


EXTENSIONS = {
    "confluent-kafka": r"unknown: .* cluster=lkc-1",
    "native": r"extensions cluster,.* sasl\.oauthbearer\.extensions .*engine='confluent-kafka'",
}


def test_the_extensions_of_a_function_are_sent_or_refused(servers: str, engine: EngineName) -> None:
    """The native engine left them out."""
    settings: dict[str, Any] = {
        "bootstrap.servers": servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": lambda _: (TOKEN, time.time() + 600, "", {"cluster": "lkc-1"}),
    }
    with pytest.raises(RejectedError, match=EXTENSIONS[engine]):
        txn.Producer(settings, transactional_id="shop", engine=engine)
    consumer = txn.Consumer(settings, group_id="shop", engine=engine)
    consumer.subscribe(["orders"])
    with pytest.raises(RejectedError, match=EXTENSIONS[engine]):
        consumer.poll(WAIT_S)
    consumer.close()


def test_the_extensions_of_a_function_go_with_the_native_engine_if_they_are_set(
    repeater: Repeater, servers: str
) -> None:
    settings: dict[str, Any] = {
        "bootstrap.servers": servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.extensions": "cluster=lkc-1",
        "oauth_cb": lambda _: (TOKEN, time.time() + 600, "", {"cluster": "lkc-1"}),
    }
    with pytest.raises(RejectedError, match=r"refused|unknown"):
        txn.Producer(settings, transactional_id="shop", engine="native")
    assert repeater.received
    assert all(b"\1cluster=lkc-1\1" in each for each in repeater.received)


class Endpoint(BaseHTTPRequestHandler):
    """A token endpoint that refuses each client in the words that it was sent."""

    def do_POST(self) -> None:
        sent = self.headers["Authorization"]
        pair = base64.b64decode(sent.removeprefix("Basic ")).decode()
        words = f'{{"error": "invalid_client", "error_description": "{pair}, {sent}"}}'.encode()
        self.send_response(401)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(words)))
        self.end_headers()
        self.wfile.write(words)

    def log_message(self, *_: Any) -> None:
        pass


def test_a_token_endpoint_is_told_of_without_the_secret_that_it_repeats(
    servers: str, caplog: pytest.LogCaptureFixture
) -> None:
    with HTTPServer(("127.0.0.1", 0), Endpoint) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        settings: dict[str, object] = {
            "bootstrap.servers": servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.token.endpoint.url": f"http://127.0.0.1:{server.server_port}/",
            "sasl.oauthbearer.client.id": "ann",
            "sasl.oauthbearer.client.secret": SECRET,
        }
        consumer = txn.Consumer(settings, group_id="shop", engine="confluent-kafka")
        consumer.subscribe(["orders"])
        deadline = time.monotonic() + WAIT_S
        with caplog.at_level(logging.INFO, "txn.client"):
            while "invalid_client" not in caplog.text and time.monotonic() < deadline:
                consumer.poll(0.1)
        consumer.close()
        server.shutdown()
        thread.join()
    assert "invalid_client" in caplog.text
    assert SECRET not in caplog.text
    assert base64.b64encode(f"ann:{SECRET}".encode()).decode() not in caplog.text
