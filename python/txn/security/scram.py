"""SCRAM: credentials of users, and the server's side of the exchange.

Pure: nonces and the fake salt's key come as arguments.

1. client-first: `n,[a=AUTHZID],n=NAME,r=CLIENT_NONCE[,EXTENSIONS]`
2. server-first: `r=CLIENT_NONCE SERVER_NONCE,s=SALT,i=ITERATIONS`
3. client-final: `c=GS2_HEADER,r=NONCE[,EXTENSIONS],p=PROOF`
4. server-final: `v=SIGNATURE`

The proof depends on the server's nonce, which is new for each exchange, so a proof that was
overheard proves nothing again. A user that does not exist has a salt too, always the same one, and
fails at the same step as a wrong password does. As in Apache Kafka, passwords are not
normalized by SASLprep.

Deviation from Apache Kafka: Kafka refuses an unknown user at its first message, which tells
existing names apart. A `tokenauth=true` extension asks for a delegation token; there are none, so
it fails as an unknown user.

Sources: RFC 5802, RFC 7677; KIP-84, KIP-554.
"""

import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Final, NamedTuple

from txn.security.mechanisms import (
    NAME_MAX,
    SCRAM_SHA_256,
    SCRAM_SHA_512,
    RefusedError,
    Success,
    text_of,
)

ITERATIONS_MIN: Final = 4096
ITERATIONS_MAX: Final = 16_384
"""Bounds of Kafka's controller: every log-in costs its client as much."""

SALT_BYTES: Final = 32
NONCE_MAX: Final = 512
"""The most characters of a client's nonce."""

MESSAGE_MAX: Final = 16 << 10
"""The most bytes of a message. The first one is kept until the second, and nobody knows the client
yet."""


class ScramHash(NamedTuple):
    """A hash function of SCRAM: its mechanism, its name in `hashlib`, and Kafka's number of it."""

    mechanism: str
    digest: str
    number: int

    @property
    def size(self) -> int:
        """Bytes of a digest."""
        return int(hashlib.new(self.digest).digest_size)

    def hmac(self, key: bytes, message: bytes) -> bytes:
        """Authenticate a message."""
        return hmac.digest(key, message, self.digest)

    def hash(self, data: bytes) -> bytes:
        """Digest some bytes."""
        return hashlib.new(self.digest, data).digest()


SHA_256: Final = ScramHash(SCRAM_SHA_256, "sha256", 1)
SHA_512: Final = ScramHash(SCRAM_SHA_512, "sha512", 2)
HASHES: Final = {each.number: each for each in (SHA_256, SHA_512)}
"""The hashes, by their numbers in requests and records."""

HASHES_BY_MECHANISM: Final = {each.mechanism: each for each in HASHES.values()}


class ScramCredential(NamedTuple):
    """The broker's knowledge of a password: enough to check it, too little to log in with it."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"ScramCredential(iterations={self.iterations})"


def salted_password(hash_: ScramHash, password: str, salt: bytes, iterations: int) -> bytes:
    """Derive a password's key. Cost: milliseconds; the iterations are there for that."""
    return hashlib.pbkdf2_hmac(hash_.digest, password.encode(), salt, iterations)


def credential_of(hash_: ScramHash, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
    """The credential of a salted password."""
    client_key = hash_.hmac(salted, b"Client Key")
    server_key = hash_.hmac(salted, b"Server Key")
    return ScramCredential(salt, hash_.hash(client_key), server_key, iterations)


def matches(hash_: ScramHash, credential: ScramCredential, password: str) -> bool:
    """Return True if a credential is of this password."""
    salted = salted_password(hash_, password, credential.salt, credential.iterations)
    mine = credential_of(hash_, salted, credential.salt, credential.iterations)
    return hmac.compare_digest(mine.stored_key, credential.stored_key)


_PRINTABLE: Final = r"[\x21-\x2b\x2d-\x7e]+"
_VALUE: Final = r"[^,\0]+"
_EXTENSIONS: Final = rf"(?:,[A-Za-z]+={_VALUE})*"
_CLIENT_FIRST: Final = re.compile(
    rf"(?P<header>[ny],(?:a=(?P<authzid>{_VALUE}))?,)"
    rf"(?P<bare>n=(?P<name>{_VALUE}),r=(?P<nonce>{_PRINTABLE})(?P<extensions>{_EXTENSIONS}))"
)
_CLIENT_FINAL: Final = re.compile(
    rf"(?P<bare>c=(?P<binding>[A-Za-z0-9+/=]+),r=(?P<nonce>{_PRINTABLE}){_EXTENSIONS})"
    r",p=(?P<proof>[A-Za-z0-9+/=]+)"
)


class _Begun(NamedTuple):
    """An exchange after its first two messages."""

    name: str
    header: bytes
    client_first: str
    """client-first-bare, as the signature takes it."""
    nonce: str
    server_first: str
    credential: ScramCredential
    is_known: bool


class ScramExchange:
    """One authentication by SCRAM; a `mechanisms.Exchange`.

    Args:
        hash_: The mechanism's hash.
        find: Gives the credential of a name, None if there is none.
        nonce: The server's part of the nonce: printable, without a comma, never used before.
        fake_key: Key of the salts of names that do not exist; the same as long as the broker
            runs, and known only here.
    """

    def __init__(
        self,
        hash_: ScramHash,
        find: Callable[[str], ScramCredential | None],
        *,
        nonce: str,
        fake_key: bytes,
    ) -> None:
        self._hash = hash_
        self._find = find
        self._nonce = nonce
        self._fake_key = fake_key
        self._begun: _Begun | None = None

    def respond(self, token: bytes) -> bytes | Success:
        """See `Exchange`."""
        if len(token) > MESSAGE_MAX:
            raise RefusedError("the message is too long")
        if self._begun is None:
            self._begun = self._begin(text_of(token))
            return self._begun.server_first.encode()
        return self._end(self._begun, text_of(token))

    def _begin(self, message: str) -> _Begun:
        first = _CLIENT_FIRST.fullmatch(message)
        if first is None:
            raise RefusedError("the first message is not of SCRAM")
        name = _unescaped(first["name"])
        if first["authzid"] is not None and _unescaped(first["authzid"]) != name:
            raise RefusedError(
                "the authorization id is another name",
                name=name,
                message="Authentication failed: Client requested an authorization id that is "
                "different from username",
            )
        if len(first["nonce"]) > NONCE_MAX:
            raise RefusedError("the nonce is too long", name=name)
        is_token = ",tokenauth=true" in first["extensions"]
        known = None if is_token else self._find(name)
        credential = known or self._fake(name)
        nonce = first["nonce"] + self._nonce
        salt = b64encode(credential.salt).decode()
        return _Begun(
            name,
            first["header"].encode(),
            first["bare"],
            nonce,
            f"r={nonce},s={salt},i={credential.iterations}",
            credential,
            known is not None,
        )

    def _end(self, begun: _Begun, message: str) -> Success:
        final = _CLIENT_FINAL.fullmatch(message)
        if final is None:
            raise RefusedError("the final message is not of SCRAM", name=begun.name)
        if not hmac.compare_digest(final["nonce"], begun.nonce):
            raise RefusedError("the nonce is of another exchange", name=begun.name)
        if _decoded(final["binding"], begun.name) != begun.header:
            raise RefusedError("the channel binding was changed on its way", name=begun.name)
        signed = f"{begun.client_first},{begun.server_first},{final['bare']}".encode()
        client_signature = self._hash.hmac(begun.credential.stored_key, signed)
        proof = _decoded(final["proof"], begun.name)
        if len(proof) != len(client_signature):
            raise RefusedError("the proof has another length", name=begun.name)
        client_key = bytes(a ^ b for a, b in zip(proof, client_signature, strict=True))
        is_proven = hmac.compare_digest(self._hash.hash(client_key), begun.credential.stored_key)
        # An unknown user's proof is worked out all the same, so that it takes as long.
        if not (is_proven and begun.is_known):
            raise RefusedError(
                "the password is wrong" if begun.is_known else "there is no such user",
                name=begun.name,
            )
        signature = self._hash.hmac(begun.credential.server_key, signed)
        return Success(begun.name, b"v=" + b64encode(signature))

    def _fake(self, name: str) -> ScramCredential:
        """The credential of no user: the same salt each time, and keys that fit no password."""
        stream = self._hash.hmac(self._fake_key, name.encode())
        salt = hashlib.sha256(b"salt" + stream).digest()[:SALT_BYTES]
        return ScramCredential(salt, stream, stream, ITERATIONS_MIN)


def _decoded(text: str, name: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except ValueError:
        raise RefusedError("the final message has bytes that are no base64", name=name) from None


def _unescaped(text: str) -> str:
    """A name of SCRAM, where `=2C` and `=3D` stand for `,` and `=`. Raises RefusedError."""
    if len(text) > NAME_MAX:
        raise RefusedError("the name is too long")
    if re.search(r"=(?!2C|3D)", text):
        raise RefusedError("the name is not written as SCRAM does")
    return text.replace("=2C", ",").replace("=3D", "=")
