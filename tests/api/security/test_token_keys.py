"""Bearer tokens: the claims of each, the keys of their issuer, and real clients that bring them."""

import asyncio
import base64
import json
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any
from urllib.parse import urljoin

import jwt
import pytest
from confluent_kafka.admin import AdminClient
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from hypothesis import given
from hypothesis import strategies as st

import txn
from support.wire_client import RawConnection
from txn.logs import RareLog, log
from txn.security.mechanisms import RefusedError, Success
from txn.security.oauth import InvalidTokenError, OAuthExchange, ValidToken
from txn.server.security import logins, token_keys
from txn.server.security.token_keys import (
    KeysWantedError,
    TokenKeys,
    TokenRules,
    check_claims,
    read_key_set,
)
from txn.wire.api_keys import ApiKey
from txn.wire.error_codes import ErrorCode

WAIT_S = 30
NOW_MS = 1_800_000_000_000
NOW_S = NOW_MS // 1000
CLAIMS = {"sub": "alice", "iat": NOW_S - 10, "exp": NOW_S + 60}

RSA = rsa.generate_private_key(public_exponent=65_537, key_size=2048)
OTHER_RSA = rsa.generate_private_key(public_exponent=65_537, key_size=2048)
EC = ec.generate_private_key(ec.SECP256R1())


@pytest.fixture(autouse=True)
def _each_line_is_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests before may have logged the same event within this second."""
    for module in (logins, token_keys):
        monkeypatch.setattr(module, "rare_log", RareLog(log))


def public(key: Any, kid: str, **facts: str) -> dict[str, str]:
    algorithm = "RS256" if isinstance(key, rsa.RSAPrivateKey) else "ES256"
    described = jwt.get_algorithm_by_name(algorithm).to_jwk(key.public_key(), as_dict=True)
    return {**described, "kid": kid, **facts}


KEY_SET = json.dumps({"keys": [public(RSA, "rsa"), public(EC, "ec")]}).encode()


def signed(
    claims: dict[str, Any], key: Any = RSA, kid: str | None = "rsa", alg: str = "RS256"
) -> str:
    token: str = jwt.encode(claims, key, alg, headers={} if kid is None else {"kid": kid})
    return token


def keys_of(fetch: Callable[[], bytes] = lambda: KEY_SET, **rules: Any) -> TokenKeys:
    return TokenKeys(TokenRules(**rules), fetch, lambda: NOW_MS, refresh_ms=60_000, pause_ms=60_000)


def validated(token: str, keys: TokenKeys | None = None) -> ValidToken:
    """A token's facts, by keys that are fetched first."""
    known = keys or keys_of()
    asyncio.run(known.refresh())
    return known.validate(token)


# ------------------------------------------------------------ the token


@pytest.mark.parametrize(
    ("key", "kid", "alg"), [(RSA, "rsa", "RS256"), (RSA, "rsa", "PS512"), (EC, "ec", "ES256")]
)
def test_a_token_of_each_kind_of_key_is_valid(key: Any, kid: str, alg: str) -> None:
    valid = validated(signed(CLAIMS, key, kid, alg))
    assert valid == ValidToken("alice", (NOW_S + 60) * 1000)


def test_a_token_that_nobody_signed_or_another_did_is_refused() -> None:
    with pytest.raises(InvalidTokenError, match="algorithm"):
        validated(jwt.encode(CLAIMS, None, "none", headers={"kid": "rsa"}))
    with pytest.raises(InvalidTokenError, match="signature"):
        validated(signed(CLAIMS, OTHER_RSA))
    with pytest.raises(InvalidTokenError, match="algorithm is not that of its key"):
        only_256 = json.dumps({"keys": [public(RSA, "rsa", alg="RS256")]}).encode()
        validated(signed(CLAIMS, alg="RS512"), keys_of(lambda: only_256))


def test_the_public_key_of_the_issuer_signs_no_token() -> None:
    """A token of a symmetric algorithm, signed with the text of the public key."""
    token = jwt.encode(CLAIMS, "x" * 64, "HS256", headers={"kid": "rsa"})
    with pytest.raises(InvalidTokenError, match="algorithm"):
        validated(token)


@pytest.mark.parametrize("algorithm", [[], {}, 7, None, "RS25"])
def test_an_algorithm_that_is_no_name_of_one_refuses_the_token(algorithm: object) -> None:
    header, claims = ({"alg": algorithm, "kid": "rsa"}, CLAIMS)
    parts = [base64.urlsafe_b64encode(json.dumps(one).encode()) for one in (header, claims)]
    token = b".".join(part.rstrip(b"=") for part in [*parts, b"AAAA"]).decode()
    with pytest.raises(InvalidTokenError, match=r"algorithm|cannot be read"):
        validated(token)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"exp": NOW_S - 31}, "has expired"),
        ({"exp": None}, "exp is no time"),
        ({"exp": "soon"}, "exp is no time"),
        ({"exp": True}, "exp is no time"),
        ({"exp": 1e300}, "exp is no time"),
        ({"iat": None}, "iat is no time"),
        ({"nbf": NOW_S + 31}, "does not count yet"),
        ({"nbf": "x"}, "nbf is no time"),
        ({"iat": NOW_S + 5, "exp": NOW_S + 4}, "expires before it begins"),
        ({"exp": NOW_S + 9, "nbf": NOW_S + 10}, "expires before it begins"),
        ({"sub": ""}, "sub names nobody"),
        ({"sub": " \t\n\0"}, "sub names nobody"),
        ({"sub": None}, "sub names nobody"),
        ({"sub": "a\ud800"}, "sub is no text"),
        ({"sub": "\udfff"}, "sub is no text"),
        ({"aud": "others"}, "another audience"),
        ({"aud": 7}, "aud is no list"),
        ({"iss": "others"}, "issuer is another"),
        ({"scope": 7}, "scope is no scope"),
    ],
)
def test_a_claim_that_is_not_right_refuses_the_token(changes: dict[str, Any], reason: str) -> None:
    rules = TokenRules(("txn",), "me")
    claims = {**CLAIMS, "aud": "txn", "iss": "me", **changes}
    claims = {name: value for name, value in claims.items() if value is not None}
    with pytest.raises(InvalidTokenError, match=reason):
        check_claims(claims, rules, NOW_MS)


def test_the_clocks_may_differ_by_the_skew() -> None:
    rules = TokenRules(clock_skew_s=30)
    check_claims({**CLAIMS, "exp": NOW_S - 29, "iat": NOW_S - 60}, rules, NOW_MS)
    check_claims({**CLAIMS, "nbf": NOW_S + 30}, rules, NOW_MS)


def test_blanks_around_a_subject_are_no_part_of_the_name() -> None:
    """The principal was `User: alice `, which looks like another's and is in no entry."""
    assert check_claims({**CLAIMS, "sub": " alice\n"}, TokenRules(), NOW_MS).name == "alice"


def test_a_token_for_an_audience_needs_one_that_is_expected() -> None:
    with pytest.raises(InvalidTokenError, match="another audience"):
        check_claims({**CLAIMS, "aud": ["txn"]}, TokenRules(), NOW_MS)
    assert check_claims({**CLAIMS, "aud": ["a", "txn"]}, TokenRules(("txn",)), NOW_MS)


def test_the_principal_may_be_another_claim() -> None:
    claims = {**CLAIMS, "client": "bob"}
    assert check_claims(claims, TokenRules(sub_claim="client"), NOW_MS).name == "bob"


# ------------------------------------------------------------ the keys


def test_an_unknown_key_has_the_keys_fetched_once_and_is_refused_then() -> None:
    fetched: list[int] = []

    def fetch() -> bytes:
        fetched.append(1)
        return KEY_SET

    async def run() -> None:
        keys = keys_of(fetch)
        with pytest.raises(KeysWantedError):
            keys.validate(signed(CLAIMS))
        await asyncio.gather(*(keys.refresh() for _ in range(9)))
        assert keys.validate(signed(CLAIMS)).name == "alice"
        for _ in range(9):
            with pytest.raises(InvalidTokenError, match="none of its issuer's"):
                keys.validate(signed(CLAIMS, kid="later"))

    asyncio.run(run())
    assert fetched == [1]


def test_a_fetch_that_fails_leaves_the_keys_that_were_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0]
    monkeypatch.setattr(token_keys, "monotonic_ms", lambda: now[0])
    answers = [KEY_SET, b"no key set"]

    async def run() -> None:
        keys = keys_of(lambda: answers.pop(0))
        await keys.refresh()
        now[0] = 120_000
        assert keys.validate(signed(CLAIMS)).name == "alice"  # and fetches beside it
        await keys.refresh()
        assert answers == []
        assert keys.validate(signed(CLAIMS)).name == "alice"

    asyncio.run(run())


def test_a_key_set_keeps_keys_that_verify_signatures_alone() -> None:
    keys = [
        public(RSA, "one"),
        public(RSA, "two", use="enc"),
        {"kty": "oct", "k": "AAAA", "kid": "three"},
        {**public(RSA, "four"), "kid": 4},
        "five",
    ]
    assert list(read_key_set(json.dumps({"keys": keys}).encode())) == ["one"]
    for wrong in (b"[]", b'{"keys": 1}'):
        with pytest.raises(ValueError, match="no JSON Web Key Set"):
            read_key_set(wrong)
    with pytest.raises(json.JSONDecodeError):
        read_key_set(b"")


# ------------------------------------------------------------ the message


def exchange(validate: Callable[[str], ValidToken] = lambda token: ValidToken(token, 5)) -> Any:
    return OAuthExchange(validate)


def test_a_message_of_rfc_7628_gives_the_token() -> None:
    message = b"n,a=to.ken,\1host=h\1port=1\1auth=Bearer to.ken\1\1"
    assert exchange().respond(message) == Success("to.ken", b"", 5)


def test_a_refused_token_is_told_in_json_and_then_refused() -> None:
    def refuse(token: str) -> ValidToken:
        raise InvalidTokenError("it has expired", name="alice")

    server = exchange(refuse)
    assert server.respond(b"n,,\1auth=Bearer a.b.c\1\1") == b'{"status":"invalid_token"}'
    with pytest.raises(RefusedError, match="expired") as refused:
        server.respond(b"\1")
    assert refused.value.message == '{"status":"invalid_token"}'
    assert refused.value.name == "alice"


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,\1\1",
        b"n,,\1auth=Bearer\1\1",
        b"n,,\1auth=Basic abc\1\1",
        b"n,,\1auth=Bearer a b\1\1",
        b"n,,\1auth=Bearer a\1auth=Bearer b\1\1",
        b"n,,\1auth=Bearer " + b"a" * (65 << 10) + b"\1\1",
        b"n,,\1auth=Bearer a\1x=" + b"a" * (65 << 10) + b"\1\1",
        b"n,a=bob,\1auth=Bearer a\1\1",
        b"\xff",
    ],
)
def test_a_message_that_is_none_is_refused(message: bytes) -> None:
    with pytest.raises(RefusedError):
        exchange().respond(message)


@given(st.binary(max_size=60) | st.text("nauthBer =,\1.", max_size=60).map(str.encode))
def test_any_bytes_are_a_token_or_refused(message: bytes) -> None:
    try:
        assert isinstance(exchange().respond(message), Success)
    except RefusedError:
        return


# ------------------------------------------------------------ real clients


SLOW = "/slow"


class Issuer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == SLOW:
            time.sleep(0.05)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(KEY_SET)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def issuer() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Issuer) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/keys"
        server.shutdown()
        thread.join()


def client(broker: txn.Broker, claims: dict[str, Any], key: Any = RSA, **more: Any) -> AdminClient:
    """A client that comes with a token of these claims."""
    now_s = int(time.time())
    token = signed({"sub": "alice", "iat": now_s, "exp": now_s + 600, **claims}, key)
    settings: dict[str, Any] = {
        "bootstrap.servers": broker.bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": lambda _: (token, now_s + 600),
        "log_level": 0,
    }
    admin = AdminClient(settings | more)
    admin.poll(0)
    return admin


def refusal(broker: txn.Broker, claims: dict[str, Any], key: Any = RSA) -> str:
    """The first error that the client of a refused token is told."""
    told: list[str] = []
    admin = client(broker, claims, key, error_cb=lambda error: told.append(str(error)))
    deadline = time.monotonic() + WAIT_S
    while not told:
        assert time.monotonic() < deadline
        admin.poll(0.1)
    return told[0]


def settings(url: str) -> dict[str, Any]:
    return {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": url,
        "listener.name.sasl_plaintext.oauthbearer.sasl.oauthbearer.expected.audience": "txn",
    }


def test_librdkafka_comes_with_a_token_of_an_issuer(issuer: str) -> None:
    with txn.Broker(properties=settings(issuer)) as broker:
        assert client(broker, {"aud": "txn"}).list_topics(timeout=WAIT_S).brokers
        assert "_AUTHENTICATION" in refusal(broker, {"aud": "others"})
        assert "_AUTHENTICATION" in refusal(broker, {"aud": "txn"}, OTHER_RSA)


def test_the_keys_may_be_a_file(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_bytes(KEY_SET)
    with txn.Broker(properties=settings(path.as_uri())) as broker:
        assert client(broker, {"aud": "txn"}).list_topics(timeout=WAIT_S).brokers


def test_a_key_set_of_more_than_a_mebibyte_is_not_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "keys.json"
    path.write_bytes(KEY_SET + b" " * (1 << 20))
    with txn.Broker(properties=settings(path.as_uri())) as broker:
        assert "_AUTHENTICATION" in refusal(broker, {"aud": "txn"})
    assert "oauth.keys_not_fetched" in caplog.text
    assert "more than 1048576 bytes" in caplog.text


def test_a_key_set_that_comes_byte_by_byte_is_given_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each byte came within the time-out, so the fetch had no end, and no other one began."""
    ends = Event()

    class Dripping(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            with suppress(ConnectionError):
                while not ends.wait(0.05):
                    self.wfile.write(b" ")

        def log_message(self, *_: Any) -> None:
            pass

    monkeypatch.setattr(token_keys, "FETCH_SECONDS_MAX", 0.5)
    with ThreadingHTTPServer(("127.0.0.1", 0), Dripping) as server:
        thread = Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        with txn.Broker(properties=settings(f"http://127.0.0.1:{server.server_port}")) as broker:
            assert "_AUTHENTICATION" in refusal(broker, {"aud": "txn"})
        ends.set()
        server.shutdown()
        thread.join()
    assert "the answer takes too long" in caplog.text


@pytest.mark.parametrize("url", ["http://issuer.example/keys", "ftp://a/b", "file://other/keys"])
def test_keys_that_anybody_on_the_way_can_change_refuse_the_start(url: str) -> None:
    with pytest.raises(txn.ConfigError, match="another scheme"):
        txn.Broker(properties=settings(url))


def test_a_client_is_refused_if_the_next_fetch_is_due_at_the_end_of_the_first(
    issuer: str, caplog: pytest.LogCaptureFixture
) -> None:
    slow = urljoin(issuer, SLOW)
    pause = {"sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": 1}
    message = f"n,,\1auth=Bearer {signed(CLAIMS, kid='later')}\1\1".encode()
    with (
        caplog.at_level(logging.WARNING, "txn"),
        txn.Broker(properties=settings(slow) | pause) as broker,
        RawConnection(broker.bootstrap_servers) as client,
    ):
        client.ask(ApiKey.SASL_HANDSHAKE, 1, mechanism="OAUTHBEARER")
        answer = client.ask(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=message)
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert client.is_closed_by_peer()
    assert "did not come in time" in caplog.text
    assert "request.failed" not in caplog.text
