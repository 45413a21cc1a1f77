"""SCRAM on the server's side: RFC 7677's exchange, and every way to fail."""

import hashlib
import hmac
from base64 import b64decode, b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txn.security.mechanisms import RefusedError, Success
from txn.security.scram import (
    HASHES,
    MESSAGE_MAX,
    SHA_256,
    SHA_512,
    ScramCredential,
    ScramExchange,
    ScramHash,
    credential_of,
    matches,
    salted_password,
)

SALT = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
FAKE_KEY = bytes(32)


def credential(hash_: ScramHash = SHA_256, password: str = "pencil") -> ScramCredential:
    salted = salted_password(hash_, password, SALT, 4096)
    return credential_of(hash_, salted, SALT, 4096)


def exchange(nonce: str = "3rfc", hash_: ScramHash = SHA_256) -> ScramExchange:
    users = {"user": credential(hash_)}
    return ScramExchange(hash_, users.get, nonce=nonce, fake_key=FAKE_KEY)


def challenge(one: ScramExchange, first: bytes = b"n,,n=user,r=abc") -> bytes:
    answer = one.respond(first)
    assert isinstance(answer, bytes)
    return answer


def final(
    server_first: bytes,
    password: str = "pencil",
    *,
    hash_: ScramHash = SHA_256,
    client_first_bare: bytes = b"n=user,r=abc",
    header: bytes = b"n,,",
    nonce: bytes | None = None,
) -> bytes:
    """A client's final message, worked out here once more: RFC 5802, section 3."""
    fields = dict(part.split(b"=", 1) for part in server_first.split(b","))
    salt, iterations = b64decode(fields[b"s"]), int(fields[b"i"])
    salted = hashlib.pbkdf2_hmac(hash_.digest, password.encode(), salt, iterations)
    key = hmac.digest(salted, b"Client Key", hash_.digest)
    stored = hashlib.new(hash_.digest, key).digest()
    bare = b"c=" + b64encode(header) + b",r=" + (nonce or fields[b"r"])
    message = b",".join([client_first_bare, server_first, bare])
    signature = hmac.digest(stored, message, hash_.digest)
    proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
    return bare + b",p=" + b64encode(proof)


def test_the_exchange_of_rfc_7677_goes_as_it_stands_there() -> None:
    server = exchange("%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    first = server.respond(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO")
    assert first == (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    last = server.respond(
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert last == Success("user", b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


def test_a_message_that_would_fill_the_memory_is_refused() -> None:
    long = b",x=" + b"y" * MESSAGE_MAX
    with pytest.raises(RefusedError, match="too long"):
        exchange().respond(b"n,,n=user,r=abc" + long)
    begun = exchange()
    answer = final(challenge(begun))
    with pytest.raises(RefusedError, match="too long"):
        begun.respond(answer.replace(b",p=", long + b",p="))


@pytest.mark.parametrize("hash_", HASHES.values(), ids=lambda hash_: hash_.mechanism)
def test_a_right_password_succeeds_with_each_hash(hash_: ScramHash) -> None:
    server = exchange(hash_=hash_)
    answer = server.respond(final(challenge(server), hash_=hash_))
    assert isinstance(answer, Success)
    assert answer.name == "user"


def test_a_wrong_password_and_an_unknown_user_fail_at_the_same_step() -> None:
    server = exchange()
    with pytest.raises(RefusedError, match="password is wrong") as wrong:
        server.respond(final(challenge(server), "pen"))
    server = exchange()
    bare = b"n=nobody,r=abc"
    server_first = challenge(server, b"n,," + bare)
    with pytest.raises(RefusedError, match="no such user") as unknown:
        server.respond(final(server_first, client_first_bare=bare))
    assert wrong.value.message is unknown.value.message is None


def test_an_unknown_user_has_the_same_salt_each_time_and_another_than_others() -> None:
    first = challenge(exchange(), b"n,,n=nobody,r=abc")
    assert challenge(exchange(), b"n,,n=nobody,r=abc") == first
    assert challenge(exchange(), b"n,,n=somebody,r=abc") != first
    assert b",i=4096" in first


def test_a_proof_that_was_overheard_fails_in_another_exchange() -> None:
    overheard = exchange("one")
    message = final(challenge(overheard))
    assert isinstance(overheard.respond(message), Success)
    replayed = exchange("two")
    challenge(replayed)
    with pytest.raises(RefusedError, match="nonce is of another exchange"):
        replayed.respond(message)


def test_a_client_that_changes_the_nonce_after_the_challenge_is_refused() -> None:
    server = exchange()
    with pytest.raises(RefusedError, match="nonce"):
        server.respond(final(challenge(server), nonce=b"abc"))


def test_a_header_that_was_changed_on_its_way_is_refused() -> None:
    server = exchange()
    with pytest.raises(RefusedError, match="channel binding"):
        server.respond(final(challenge(server), header=b"y,,"))


def test_another_authorization_id_is_refused_and_the_own_name_is_not() -> None:
    with pytest.raises(RefusedError, match="authorization id"):
        exchange().respond(b"n,a=root,n=user,r=abc")
    challenge(exchange(), b"n,a=user,n=user,r=abc")


def test_a_name_with_a_comma_or_an_equals_sign_is_escaped() -> None:
    seen: list[str] = []
    server = ScramExchange(SHA_512, lambda name: seen.append(name), nonce="x", fake_key=FAKE_KEY)
    server.respond(b"n,,n=a=2Cb=3Dc,r=abc")
    assert seen == ["a,b=c"]


def test_a_delegation_token_is_no_user() -> None:
    server = exchange()
    bare = b"n=user,r=abc,tokenauth=true"
    with pytest.raises(RefusedError, match="no such user"):
        server.respond(final(challenge(server, b"n,," + bare), client_first_bare=bare))


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,n=,r=abc",
        b"n,,n=user",
        b"n,,n=user,r=",
        b"n,,n=user,r=a c",
        b"n,,m=must,n=user,r=abc",
        b"p=tls-unique,,n=user,r=abc",
        b"n,,n=us=er,r=abc",
        b"n,,n=" + b"u" * 2000 + b",r=abc",
        b"n,,n=user,r=" + b"a" * 2000,
        b"n,,n=\xff,r=abc",
    ],
)
def test_a_first_message_that_is_none_is_refused(message: bytes) -> None:
    with pytest.raises(RefusedError):
        exchange().respond(message)


@given(
    st.lists(
        st.binary(max_size=200)
        | st.text(alphabet="nyarcpsi=,+/A2C3D", max_size=80).map(str.encode),
        max_size=2,
    )
)
def test_no_bytes_but_a_proof_come_through(messages: list[bytes]) -> None:
    server = exchange()
    for message in messages:
        try:
            assert isinstance(server.respond(message), bytes)
        except RefusedError:
            return


def test_a_credential_is_shown_without_its_secrets_and_checked_by_its_password() -> None:
    made = credential()
    assert repr(made) == "ScramCredential(iterations=4096)"
    assert matches(SHA_256, made, "pencil")
    assert not matches(SHA_256, made, "pen")
