"""Tokens for OAUTHBEARER: where they come from, how long they are kept, and how refusals read."""

import base64
import json
import math
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
import trustme

from txn.access import tokens
from txn.access.tokens import token_call
from txn.errors import ConfigError, RejectedError, RetriableError, TxnError
from txn.security.client import (
    ClientCredentials,
    StaticToken,
    Store,
    TokenCall,
    TokenFile,
    TokenSource,
    UnsecuredToken,
)

SECRET = "hunter2"


def no_keystore(_: bytes, __: str | None) -> tuple[None, None, None]:
    raise ValueError("it is none")


def asked(source: TokenSource, clock: Callable[[], float] = lambda: 0.0) -> str:
    return token_call(source, no_keystore, clock=clock)()


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    tokens.kept_tokens.clear()
    yield
    tokens.kept_tokens.clear()


class Endpoint:
    """An OIDC endpoint on loopback that gives prepared answers, and keeps the requests."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.requests: list[tuple[str, dict[str, list[str]]]] = []
        self.answers: list[tuple[int, bytes]] = []
        self.location = ""
        self.is_chunked = False
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                endpoint.requests.append((self.headers["Authorization"], parse_qs(body)))
                status, content = endpoint.answers.pop(0)
                self.send_response(status)
                if endpoint.location:
                    self.send_header("Location", endpoint.location)
                if endpoint.is_chunked:
                    self.send_header("Transfer-Encoding", "chunked")
                else:
                    self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        if context is not None:
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def client(self, **more: Any) -> ClientCredentials:
        return ClientCredentials(f"http://127.0.0.1:{self.port}/token", "me", SECRET, **more)


@contextmanager
def serving(context: ssl.SSLContext | None = None) -> Iterator[Endpoint]:
    endpoint = Endpoint(context)
    try:
        yield endpoint
    finally:
        endpoint.close()


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with serving() as found:
        yield found


def answer(token: str = "a.b.c", **more: object) -> tuple[int, bytes]:
    return 200, json.dumps({"access_token": token, **more}).encode()


# ---------------------------------------------------------------- without an endpoint


def test_a_static_token_is_given_as_it_is() -> None:
    assert asked(StaticToken("a.b-c_d~e+f/g=")) == "a.b-c_d~e+f/g="


def test_a_token_file_is_read_at_each_authentication(tmp_path: Path) -> None:
    path = tmp_path / "token"
    call = token_call(TokenFile(str(path)), no_keystore)
    path.write_text("first\n")
    assert call() == "first"
    path.write_text("second")
    assert call() == "second"


def test_a_function_is_called_at_each_authentication() -> None:
    numbers = iter("12")
    call = token_call(TokenCall(lambda: next(numbers)), no_keystore)
    assert (call(), call()) == ("1", "2")


def test_an_unsecured_token_has_its_claims_and_no_signature() -> None:
    header, claims, signature = asked(
        UnsecuredToken((("sub", "ann"), ("scope", ("a", "b"))), 60)
    ).split(".")
    read = json.loads(base64.urlsafe_b64decode(claims + "=="))
    assert json.loads(base64.urlsafe_b64decode(header + "==")) == {"alg": "none"}
    assert (read["sub"], read["scope"], read["exp"] - read["iat"]) == ("ann", ["a", "b"], 60)
    assert signature == ""


def failing() -> str:
    raise OSError(SECRET)


@pytest.mark.parametrize(
    ("source", "kind", "told"),
    [
        (StaticToken(f"{SECRET} x"), RejectedError, "the token of sasl.oauthbearer.token is none"),
        (StaticToken(f"{SECRET}\x01"), RejectedError, "the token of .* is none"),
        (TokenCall(lambda: None), RejectedError, "the token of the function is none"),  # type: ignore[arg-type,return-value]
        (
            TokenCall(failing),
            RetriableError,
            r"has raised OSError at .*test_tokens\.py:\d+\. Its text",
        ),
        (TokenFile("/nowhere/t"), ConfigError, "'/nowhere/t', cannot be read: No such file"),
    ],
)
def test_a_token_that_is_none_is_refused_unseen(
    source: TokenSource, kind: type[TxnError], told: str
) -> None:
    with pytest.raises(kind, match=told) as raised:
        asked(source)
    assert SECRET not in str(raised.value)


# ---------------------------------------------------------------- OIDC


def test_an_endpoint_is_asked_with_the_clients_credentials(endpoint: Endpoint) -> None:
    endpoint.answers.append(answer(expires_in=100))
    assert asked(endpoint.client(scope="kafka all")) == "a.b.c"
    ((authorization, form),) = endpoint.requests
    assert base64.b64decode(authorization.removeprefix("Basic ")) == b"me:hunter2"
    assert form == {"grant_type": ["client_credentials"], "scope": ["kafka all"]}


def test_the_header_is_encoded_where_that_is_asked_for(endpoint: Endpoint) -> None:
    endpoint.answers.append(answer())
    source = ClientCredentials(endpoint.client().endpoint, "m:e", "a b", encodes_header=True)
    asked(source)
    assert base64.b64decode(endpoint.requests[0][0].removeprefix("Basic ")) == b"m%3Ae:a+b"


def test_a_token_is_kept_for_four_fifths_of_its_life(endpoint: Endpoint) -> None:
    endpoint.answers += [answer("one", expires_in=100), answer("two", expires_in="100")]
    client = endpoint.client()
    moments = (0.0, 79.0, 81.0, 159.0)
    found = [asked(client, clock=lambda moment=moment: moment) for moment in moments]  # type: ignore[misc]
    assert found == ["one", "one", "two", "two"]


def test_a_token_without_a_life_is_not_kept(endpoint: Endpoint) -> None:
    endpoint.answers += [answer("one"), answer("two")]
    assert [asked(endpoint.client()), asked(endpoint.client())] == ["one", "two"]


def test_a_token_may_tell_its_life_itself(endpoint: Endpoint) -> None:
    claims = base64.urlsafe_b64encode(json.dumps({"exp": 2**40}).encode()).rstrip(b"=").decode()
    endpoint.answers.append(answer(f"a.{claims}.c"))
    assert asked(endpoint.client()) == asked(endpoint.client())


@pytest.mark.parametrize(
    ("status", "content", "kind", "told"),
    [
        (401, b'{"error":"invalid_client"}', RejectedError, r"\(HTTP 401, invalid_client\). Check"),
        (400, b'{"error":"hunter2 !"}', RejectedError, r"refuses a token \(HTTP 400\)"),
        (400, b"hunter2", RejectedError, r"refuses a token \(HTTP 400\)"),
        (503, b"hunter2", RetriableError, r"gives no token now \(HTTP 503\)"),
        (429, b"", RetriableError, "gives no token now"),
        (200, b"hunter2", RetriableError, "answers with no JSON object"),
        (200, b'["hunter2"]', RetriableError, "answers with no JSON object"),
        (200, b"[" * 100_000, RetriableError, "answers with no JSON object"),
        (200, b'{"access_token": ["hunter2"]}', RejectedError, "the token of the endpoint at 127"),
        (200, b"x" * (2 << 20), RetriableError, "answers with no JSON object"),
    ],
)
def test_a_refusal_is_one_sentence_without_the_text_of_the_endpoint(
    endpoint: Endpoint, status: int, content: bytes, kind: type[TxnError], told: str
) -> None:
    endpoint.answers.append((status, content))
    with pytest.raises(kind, match=told) as raised:
        asked(endpoint.client())
    assert SECRET not in str(raised.value)
    assert "\n" not in str(raised.value)


def test_the_secret_follows_no_redirection(endpoint: Endpoint) -> None:
    with serving() as other:
        endpoint.location = other.client().endpoint
        endpoint.answers.append((302, b""))
        with pytest.raises(ConfigError, match="sends elsewhere"):
            asked(endpoint.client())
        assert other.requests == []


def test_an_endpoint_that_is_away_is_a_failure_that_passes() -> None:
    source = ClientCredentials("http://127.0.0.1:9/token", "me", SECRET)
    with pytest.raises(RetriableError, match=r"127\.0\.0\.1:9 does not answer: Connection refused"):
        asked(source)


def test_an_endpoint_has_to_prove_its_name_over_https(tmp_path: Path) -> None:
    ca, other = trustme.CA(), trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    ca.issue_cert("127.0.0.1").configure_cert(context)
    path = tmp_path / "ca.pem"
    with serving(context) as endpoint:
        endpoint.answers.append(answer())
        url = f"https://127.0.0.1:{endpoint.port}/token"
        for authority in (other, ca):
            authority.cert_pem.write_to_path(str(path))
            source = ClientCredentials(
                url, "me", SECRET, trusted=Store("https.ca.location", str(path))
            )
            if authority is other:
                with pytest.raises(RetriableError, match="does not answer: unable to get local"):
                    asked(source)
            else:
                assert asked(source) == "a.b.c"
        assert len(endpoint.requests) == 1


# ---------------------------------------------------------------- numbers and bodies that are odd


def jwt(exp: str) -> str:
    claims = base64.urlsafe_b64encode(f'{{"exp": {exp}}}'.encode()).decode().rstrip("=")
    return f"a.{claims}.c"


@pytest.mark.parametrize("number", ["1e999", "9" * 400, "NaN", "-Infinity"])
def test_a_life_that_is_no_number_of_seconds_is_none(endpoint: Endpoint, number: str) -> None:
    told = f'{{"access_token": "a.b.c", "expires_in": {number}}}'.encode()
    endpoint.answers += [(200, told), answer(jwt(number)), answer("d.e.f")]
    assert [asked(endpoint.client()) for _ in range(3)] == ["a.b.c", jwt(number), "d.e.f"]
    assert math.isfinite(tokens.expiry_s(jwt(number)))


def test_a_refusal_whose_body_cannot_be_read_is_a_refusal(endpoint: Endpoint) -> None:
    endpoint.is_chunked = True
    endpoint.answers.append((401, b"no chunk\r\n"))
    with pytest.raises(RejectedError, match="HTTP 401"):
        asked(endpoint.client())


def test_an_answer_of_an_endpoint_has_a_bound(endpoint: Endpoint) -> None:
    padding = "x" * (tokens.ANSWER_BYTES_MAX - 100)
    endpoint.answers += [answer(padding=padding), answer(padding=padding + "x" * 100)]
    assert asked(endpoint.client()) == "a.b.c"
    with pytest.raises(RetriableError, match="answers with no JSON object"):
        asked(endpoint.client())


DRIPS = {
    "header": (b"HTTP/1.1 200 OK\r\nX: ", b"a"),
    "interim answers": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "body": (b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{", b" "),
    "trailers": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", b"a: b\r\n"),
}
REFUSED = b"HTTP/1.1 401 No\r\nContent-Length: 1000\r\n\r\n{"


@contextmanager
def dripping(begin: bytes, drop: bytes) -> Iterator[ClientCredentials]:
    """An endpoint whose answer goes on for the 5 s that a test has; then the connection ends."""
    is_over = threading.Event()

    def serve() -> None:
        connection, _ = server.accept()
        with connection, suppress(OSError):
            connection.recv(1 << 16)
            connection.sendall(begin)
            for _ in range(500):
                connection.sendall(drop)
                if is_over.wait(0.01):
                    return

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        port = server.getsockname()[1]
        try:
            yield ClientCredentials(f"http://127.0.0.1:{port}/token", "me", SECRET)
        finally:
            is_over.set()
            thread.join()


@pytest.mark.parametrize("part", DRIPS)
def test_an_answer_that_drips_is_over_in_time(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit was one of the body: a header could come byte by byte for ever."""
    monkeypatch.setattr(tokens, "ANSWER_SECONDS", 0.1)
    with (
        dripping(*DRIPS[part]) as source,
        pytest.raises(RetriableError, match="does not answer: the answer takes too long"),
    ):
        asked(source)


def test_a_refusal_whose_body_drips_is_over_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "ANSWER_SECONDS", 0.5)
    began = time.monotonic()
    with (
        dripping(REFUSED, b" ") as source,
        pytest.raises(RejectedError, match=r"HTTP 401\)"),
    ):
        asked(source)
    assert time.monotonic() - began < 4
