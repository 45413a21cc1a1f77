"""Mutated messages of each SASL mechanism to the broker's readers: tens of thousands a second.

A message lets somebody in, is answered, or is refused; nothing else is raised. Only the user's own
message lets the user in. The readers are Python's, so no fuzzer of Rust reaches them. More:
`HOSTILE_SECONDS=600 SEED=7 pytest -s tests/hostile/test_mutated_sasl.py`.
"""

import hashlib
import hmac
import os
import random
import time
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Callable
from typing import Final

import pytest

from hostile.fuzzer import MUTATIONS
from support.exploring import seed_of_run
from txn.security.mechanisms import Exchange, RefusedError, Success
from txn.security.oauth import InvalidTokenError, OAuthExchange, ValidToken
from txn.security.plain import PlainExchange
from txn.security.scram import SHA_256, SHA_512, ScramExchange, ScramHash, credential_of

SECONDS: Final = float(os.environ.get("HOSTILE_SECONDS", "6")) / 6
SEED: Final = seed_of_run()
SALT: Final = b"salt of the user"
BYTES_MAX: Final = 70 << 10
MESSAGE_S: Final = 0.5
"""Time that any message may take, on a machine that is busy."""


def _salted(hash_: ScramHash) -> bytes:
    return hashlib.pbkdf2_hmac(hash_.digest, b"pencil", SALT, 4096)


SALTED: Final = {hash_.mechanism: _salted(hash_) for hash_ in (SHA_256, SHA_512)}
CREDENTIALS: Final = {
    hash_.mechanism: credential_of(hash_, SALTED[hash_.mechanism], SALT, 4096)
    for hash_ in (SHA_256, SHA_512)
}


def _scram(hash_: ScramHash) -> Exchange:
    users = {"user": CREDENTIALS[hash_.mechanism]}
    return ScramExchange(hash_, users.get, nonce="3rfc", fake_key=bytes(32))


def _validate(token: str) -> ValidToken:
    if token != "to.k.en":
        raise InvalidTokenError("it is another's")
    return ValidToken("user", 5)


def _final(hash_: ScramHash, first: bytes, answer: bytes) -> bytes:
    """A client's last message, worked out from RFC 5802."""
    key = hmac.digest(SALTED[hash_.mechanism], b"Client Key", hash_.digest)
    stored = hashlib.new(hash_.digest, key).digest()
    fields = dict(part.split(b"=", 1) for part in answer.split(b","))
    assert b64decode(fields[b"s"]) == SALT
    bare = b"c=biws,r=" + fields[b"r"]
    signed = b",".join([first.removeprefix(b"n,,"), answer, bare])
    signature = hmac.digest(stored, signed, hash_.digest)
    return bare + b",p=" + b64encode(bytes(a ^ b for a, b in zip(key, signature, strict=True)))


def _says_the_same(mechanism: str, sound: bytes, message: bytes) -> bool:
    """A message may say the same in other bytes: spaces, a repeated user, unused bits of base64."""
    if mechanism == "OAUTHBEARER":
        return b"to.k.en" in message
    if mechanism == "PLAIN":
        return message.removeprefix(b"user") == sound
    (mine, _, proof), (theirs, _, given) = sound.rpartition(b",p="), message.rpartition(b",p=")
    return mine == theirs and b64decode(proof) == b64decode(given)


FIRST: Final = b"n,,n=user,r=abc"
MECHANISMS: Final[dict[str, tuple[Callable[[], Exchange], bytes]]] = {
    "PLAIN": (lambda: PlainExchange({"user": "pencil"}), b"\0user\0pencil"),
    "OAUTHBEARER": (lambda: OAuthExchange(_validate), b"n,,\1host=h\1auth=Bearer to.k.en\1\1"),
    "SCRAM-SHA-256": (lambda: _scram(SHA_256), FIRST),
    "SCRAM-SHA-512": (lambda: _scram(SHA_512), FIRST),
}


def _mutated(chance: random.Random, message: bytes) -> bytes:
    changed = bytearray(message)
    for _ in range(chance.choice((1, 1, 2, 4))):
        changed = chance.choice(MUTATIONS)(chance, changed)
    return bytes(changed[:BYTES_MAX])


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_mutated_message_is_answered_or_refused_and_lets_nobody_in(mechanism: str) -> None:
    make, sound = MECHANISMS[mechanism]
    hashes = {hash_.mechanism: hash_ for hash_ in (SHA_256, SHA_512)}
    chance = random.Random(f"{SEED} {mechanism}")
    counts: Counter[str] = Counter()
    slowest = 0.0
    end = time.monotonic() + SECONDS / len(MECHANISMS)
    while time.monotonic() < end:
        exchange, told, allowed = make(), sound, sound
        began = time.perf_counter()
        try:
            if mechanism in hashes and chance.random() < 0.7:
                answer = exchange.respond(sound)
                assert isinstance(answer, bytes)
                allowed = _final(hashes[mechanism], FIRST, answer)
            told = _mutated(chance, allowed)
            result = exchange.respond(told)
        except RefusedError:
            counts["refused"] += 1
        else:
            counts["in" if isinstance(result, Success) else "answered"] += 1
            if isinstance(result, Success):
                is_same = _says_the_same(mechanism, allowed, told)
                assert is_same, f"seed {SEED}: {told!r} lets somebody in"
        slowest = max(slowest, time.perf_counter() - began)
    print(f"{mechanism}: {dict(counts)}, at most {slowest * 1000:.1f} ms")
    assert counts["refused"] > 100
    assert slowest < MESSAGE_S
