"""The steps of an authentication, and of the next one over the same connection."""

import pytest

from txn.security.login import ILLEGAL_HANDSHAKE, ILLEGAL_TOKEN, Effect, Login, Offer, Step
from txn.security.mechanisms import RefusedError, Success
from txn.wire.error_codes import ErrorCode

NOW_MS = 1_700_000_000_000


class Spoken:
    """An exchange in clear words: "NAME", "NAME until MS", "no", or more to say."""

    def respond(self, token: bytes) -> bytes | Success:
        name, _, expires = token.decode().partition(" until ")
        if name == "no":
            raise RefusedError("it said no", name="mallory")
        return b"go on" if name == "more" else Success(name, b"in", int(expires or 0) or None)


def login(reauth_ms: int = 0) -> Login:
    return Login({"A": Offer(Spoken, reauth_ms), "B": Offer(Spoken, reauth_ms)})


def handshake(one: Login, mechanism: str = "A", version: int = 1, at_ms: int = 0) -> Step:
    return one.handshake(mechanism, version, monotonic_ms=at_ms)


def respond(one: Login, said: str = "alice", at_ms: int = 0) -> Step:
    return one.respond(said.encode(), now_ms=NOW_MS, monotonic_ms=at_ms)


@pytest.fixture
def alice() -> Login:
    """A client that logged in for ten seconds."""
    one = login(10_000)
    handshake(one)
    respond(one)
    return one


def test_a_handshake_and_tokens_admit_the_principal() -> None:
    one = login()
    assert handshake(one) == Step(Effect.REQUIRE)
    assert respond(one, "more") == Step(Effect.NONE, token=b"go on")
    assert respond(one) == Step(Effect.ADMIT, token=b"in", principal="User:alice")


def test_a_handshake_of_version_0_announces_bare_tokens() -> None:
    assert handshake(login(), version=0).effect is Effect.REQUIRE_RAW


def test_an_unknown_mechanism_is_refused_with_the_names_of_the_others() -> None:
    one = login()
    step = handshake(one, "GSSAPI")
    assert (step.effect, step.code) == (Effect.REFUSE, ErrorCode.UNSUPPORTED_SASL_MECHANISM)
    assert one.mechanisms == ["A", "B"]


def test_a_token_before_the_handshake_closes_the_connection() -> None:
    assert respond(login()).effect is Effect.CLOSE


def test_a_handshake_between_tokens_is_refused() -> None:
    one = login()
    handshake(one)
    assert handshake(one)[:2] == (Effect.REFUSE, ErrorCode.ILLEGAL_SASL_STATE)


def test_a_refusal_tells_the_client_nothing_and_the_log_the_reason() -> None:
    one = login()
    handshake(one)
    step = respond(one, "no")
    assert (step.effect, step.code) == (Effect.REFUSE, ErrorCode.SASL_AUTHENTICATION_FAILED)
    assert step.message == (
        "Authentication failed during authentication due to invalid credentials with SASL "
        "mechanism A"
    )
    assert (step.reason, step.name) == ("it said no", "mallory")


@pytest.mark.parametrize(
    ("expires_ms", "reauth_ms", "lifetime_ms"),
    [
        (None, 0, None),
        (None, 5_000, 5_000),
        (3_000, 0, 3_000),
        (3_000, 5_000, 3_000),
        (9_000, 5_000, 5_000),
        (-1, 5_000, 0),
    ],
)
def test_a_session_ends_with_the_credential_or_with_the_brokers_patience(
    expires_ms: int | None, reauth_ms: int, lifetime_ms: int | None
) -> None:
    one = login(reauth_ms)
    handshake(one)
    until = "" if expires_ms is None else f" until {NOW_MS + expires_ms}"
    assert respond(one, f"alice{until}").lifetime_ms == lifetime_ms


def test_a_session_without_end_is_not_begun_again() -> None:
    one = login()
    handshake(one)
    respond(one)
    assert handshake(one) == Step(Effect.NONE, ErrorCode.ILLEGAL_SASL_STATE, ILLEGAL_HANDSHAKE)
    assert respond(one) == Step(Effect.NONE, ErrorCode.ILLEGAL_SASL_STATE, ILLEGAL_TOKEN)


def test_the_same_principal_authenticates_again(alice: Login) -> None:
    assert handshake(alice, at_ms=5_000) == Step(Effect.REQUIRE, is_reauthentication=True)
    step = respond(alice)
    assert (step.effect, step.principal, step.lifetime_ms) == (Effect.ADMIT, "User:alice", 10_000)
    assert step.is_reauthentication


def test_another_principal_is_refused(alice: Login) -> None:
    handshake(alice, at_ms=5_000)
    step = respond(alice, "bob")
    assert (step.effect, step.code) == (Effect.REFUSE, ErrorCode.SASL_AUTHENTICATION_FAILED)
    assert step.message == (
        "Cannot change principals during re-authentication from User.alice: User.bob"
    )


def test_another_mechanism_is_refused_with_the_first_token(alice: Login) -> None:
    assert handshake(alice, "B", at_ms=5_000) == Step(Effect.REQUIRE, is_reauthentication=True)
    step = respond(alice)
    assert (step.effect, step.code) == (Effect.REFUSE, ErrorCode.SASL_AUTHENTICATION_FAILED)
    assert step.message == (
        "SASL mechanism 'B' requested by client is not supported for re-authentication of "
        "mechanism 'A'"
    )


def test_a_client_authenticates_again_once_a_second_at_most(alice: Login) -> None:
    handshake(alice, at_ms=5_000)
    respond(alice)
    assert handshake(alice, at_ms=5_999).code is ErrorCode.ILLEGAL_SASL_STATE
    assert handshake(alice, at_ms=6_000).effect is Effect.REQUIRE


def test_a_session_that_is_over_is_closed_though_it_was_prolonged_a_moment_ago() -> None:
    """It was told 34, and stayed open for the next handshake."""
    one = login(300)
    handshake(one)
    respond(one)
    handshake(one, at_ms=100)
    respond(one, at_ms=100)
    assert handshake(one, at_ms=399).code is ErrorCode.ILLEGAL_SASL_STATE
    assert handshake(one, at_ms=400).effect is Effect.CLOSE


def test_versions_are_told_once_before_the_handshake() -> None:
    one = login()
    assert one.admits_versions(is_served=False)
    assert one.admits_versions(is_served=True)
    assert not one.admits_versions(is_served=True)
    assert one.refuse_versions().effect is Effect.CLOSE
    assert handshake(one).effect is Effect.REQUIRE


def test_versions_are_not_told_between_tokens_and_told_after_them() -> None:
    one = login()
    handshake(one)
    assert not one.admits_versions(is_served=False)
    assert one.refuse_versions()[:2] == (Effect.REFUSE, ErrorCode.ILLEGAL_SASL_STATE)
    other = login()
    handshake(other)
    respond(other)
    assert other.admits_versions(is_served=True)
    assert other.admits_versions(is_served=True)
