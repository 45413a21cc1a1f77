"""PLAIN on the server's side."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txn.security.mechanisms import RefusedError, Success
from txn.security.plain import PlainExchange

USERS = {"alice": "al\u00efce's secret", "empty": ""}


def respond(token: bytes) -> object:
    return PlainExchange(USERS).respond(token)


def test_the_right_password_succeeds() -> None:
    assert respond("\0alice\0al\u00efce's secret".encode()) == Success("alice")
    assert respond("alice\0alice\0al\u00efce's secret".encode()) == Success("alice")


@pytest.mark.parametrize(
    ("token", "message"),
    [
        (b"\0alice\0wrong", "Authentication failed: Invalid username or password"),
        (b"\0nobody\0wrong", "Authentication failed: Invalid username or password"),
        (b"\0empty\0", "Authentication failed: password not specified"),
        (b"\0\0secret", "Authentication failed: username not specified"),
        (b"alice", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"a\0b\0c\0d", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (
            "root\0alice\0al\u00efce's secret".encode(),
            "Authentication failed: Client requested an authorization id that is different from "
            "username",
        ),
    ],
)
def test_each_refusal_has_kafkas_words(token: bytes, message: str) -> None:
    with pytest.raises(RefusedError) as refused:
        respond(token)
    assert refused.value.message == message
    assert "secret" not in str(refused.value)


@given(st.binary(max_size=100))
def test_no_bytes_but_a_password_come_through(token: bytes) -> None:
    with pytest.raises(RefusedError):
        respond(token)
