"""Check that the bootstrap servers admit the client; report a failure within seconds.

librdkafka tries for ever, which is right for a cluster that restarts and wrong for a wrong
address. So a client that no broker has answered yet asks the addresses itself:

    a name that does not resolve, a port that is closed     reported after `connect_timeout`
    something that answers, but not as Kafka does           reported at once
    TLS where the client speaks none, or the reverse        reported at once
    no answer at all                                        reported at the caller's own deadline
    a log-in or a certificate that is refused               reported at once, in the broker's words
    a listener with SASL where the client does not log in   reported at once

One address that answers ends these checks for good: librdkafka waits for later outages. A refusal
counts until the client was admitted once.

A listener that gets the wrong protocol often closes the connection in silence, as an overloaded
listener does. So the client tries the other protocol as well, and only an answer to that proves
the mistake.

A listener with SASL answers ApiVersions to everybody, and closes the connection at the next
request. So a client without SASL asks the listener for its mechanisms (SaslHandshake): the answer
tells the mistake from an outage.

librdkafka asks a broker without the group protocol of KIP-848 for ever, and reports nothing. So a
consumer with group.protocol=consumer reads the broker's list of requests itself.
"""

import math
import re
import socket
import ssl
import struct
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from confluent_kafka import KafkaError

from txn.errors import Action, RejectedError, UnreachableError
from txn.printable import printable

CONNECT_TIMEOUT: Final = 5.0
"""Seconds that addresses may refuse a client that no broker has answered yet."""

PROBE_SECONDS: Final = 1.5
"""Time that one address has to be connected to, and then to answer."""

FIRST_PROBE_SECONDS: Final = 0.9
"""A broker that is there has answered librdkafka by then."""

DEFAULT_PORT: Final = 9092

SCHEMES: Final = frozenset({"plaintext", "ssl", "sasl_plaintext", "sasl_ssl"})
"""librdkafka takes one of these in front of an address, if it is the client's security.protocol."""

ADDRESSES: Final = "write HOST:PORT, and a comma between two, as in 'a.example:9092,b.example:9092'"

API_VERSIONS: Final = struct.pack(">ihhih", 10, 18, 0, 0, -1)
"""An ApiVersions request: size, api key, version 0, correlation id 0, no client id."""

SASL_HANDSHAKE: Final = struct.pack(">ihhihh", 12, 17, 1, 0, -1, 0)
"""A SaslHandshake request, version 1, for a mechanism without a name, which no listener has."""

UNSUPPORTED_SASL_MECHANISM: Final = 33
"""The answer to `SASL_HANDSHAKE` of a listener with SASL."""

MECHANISMS_LISTED_MAX: Final = 10
"""As many mechanisms as a message lists."""

CONSUMER_GROUP_HEARTBEAT: Final = 68
"""The request that a member of a group of KIP-848 makes."""

ANSWER_BYTES_MAX: Final = 64 << 10
"""More than any answer to `API_VERSIONS` or `SASL_HANDSHAKE` has."""

ANSWER_SECONDS: Final = 3.0
"""The most that such an answer takes, from its request on."""

NO_LOGIN: Final = KafkaError(KafkaError.ILLEGAL_SASL_STATE).str()
"""The answer of a listener without SASL to the begin of a log-in."""

NO_LOGIN_HERE: Final = "asks for no log-in on this port"
"""Part of the native engine's message about the same answer."""

TOO_OLD: Final = "use a broker of Kafka 3.0 or newer"
"""Part of the native engine's message about a broker without the versions of a request."""

NO_MECHANISM: Final = KafkaError(KafkaError.UNSUPPORTED_SASL_MECHANISM).str()

NUDGE: Final = b"\r\n\r\n"
"""Makes a server that reads lines answer. A broker that is asked this much closes."""

TLS_ALERT: Final = 0x15


@dataclass(frozen=True, slots=True)
class AddressFault:
    """The fault of an address; `is_final` if waiting cannot help."""

    what: str
    is_final: bool = False
    is_silence: bool = False
    property: str = "bootstrap.servers"
    """The setting to correct."""


WANTS_TLS: Final = AddressFault(
    "wants TLS: set security.protocol to ssl, or to sasl_ssl for a client that logs in",
    is_final=True,
    property="security.protocol",
)
SPEAKS_NO_TLS: Final = AddressFault(
    "speaks no TLS: set security.protocol to plaintext, or to sasl_plaintext for a client that "
    "logs in",
    is_final=True,
    property="security.protocol",
)


class Reach:
    """Finds out whether a client can reach its cluster.

    Args:
        settings: The client's configuration, by Kafka's names.
        whose: Which client, as a message begins: `producer 'pay-3'`.
        patience_s: How long addresses may refuse before that is an error.
        clock: Monotonic seconds.
        probe: The fault at (host, port), spoken to with TLS or not.
        ask_api_keys: The API keys that (host, port) serves, spoken to with TLS or not.
        ask_mechanisms: The SASL mechanisms that (host, port) wants, spoken to with TLS or not.
    """

    def __init__(
        self,
        settings: Mapping[str, object],
        whose: str,
        patience_s: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        probe: "Callable[[str, int, bool], AddressFault | None] | None" = None,
        ask_api_keys: "Callable[[str, int, bool], frozenset[int]] | None" = None,
        ask_mechanisms: "Callable[[str, int, bool], list[str]] | None" = None,
    ) -> None:
        self._whose = whose
        self._patience_s = patience_s
        self._clock = clock
        self._probe = probe or look
        self._ask_api_keys = ask_api_keys or api_keys_of
        self._ask_mechanisms = ask_mechanisms or mechanisms_of
        self._addresses = addresses_in(str(settings.get("bootstrap.servers") or ""))
        protocol = str(settings.get("security.protocol", "")).lower()
        self._has_tls, self._has_sasl = "ssl" in protocol, "sasl" in protocol
        self._has_new_groups = str(settings.get("group.protocol", "")).lower() == "consumer"
        self._start = clock()
        self._next_probe = self._start + FIRST_PROBE_SECONDS
        self.is_answered = not self._addresses
        """A broker has answered a client of this process."""
        self._refusal: str | None = None
        self.is_proven = False
        """A broker has let the client in."""

    def prove(self) -> None:
        """Note that a broker has answered a request of the client."""
        self.is_proven = self.is_answered = True

    def refuse(self, reason: str) -> None:
        """Note that a broker does not let the client in, for a reason without secrets.

        The first reason counts: later ones may be its effects.
        """
        self._refusal = self._refusal or reason

    def check(self, *, is_over: bool = False) -> None:
        """Raise if the addresses are certainly wrong; to be called about once a second.

        Args:
            is_over: The caller has waited for as long as it would. No answer is enough then.

        Raises:
            UnreachableError: no broker was ever reached.
            RejectedError: a broker was, and refuses the client, or has no groups of its protocol.
        """
        if self.is_proven:
            return
        if self._refusal is not None:
            raise RejectedError(
                f"{self._whose} is not let in: {self._refusal}. {self._remedy(self._refusal)}; it "
                "will be refused again as it is",
                reason=self._refusal,
            )
        now = self._clock()
        if self.is_answered or (now < self._next_probe and not is_over):
            return
        faults = {}
        for host, port in self._addresses:
            fault = self._probe(host, port, self._has_tls) or self._missing_login(host, port)
            if fault is None:
                self._require_groups(host, port)
                self.is_answered = True
                return
            faults[f"{host}:{port}"] = fault
        waited_s = self._clock() - self._start
        self._next_probe = self._clock() + 1.0
        is_certain = all(fault.is_final for fault in faults.values())
        is_refused = not any(fault.is_silence for fault in faults.values())
        if is_over or is_certain or (is_refused and waited_s >= self._patience_s):
            raise self._unreachable(faults, is_certain)

    def _remedy(self, refusal: str) -> str:
        if NO_LOGIN in refusal or NO_LOGIN_HERE in refusal:
            plain = "ssl" if self._has_tls else "plaintext"
            return (
                "This listener takes no log-ins: set security.protocol to "
                f"{plain}, or give bootstrap.servers the address of a listener with SASL"
            )
        if TOO_OLD in refusal:
            return "Older ones have librdkafka: set engine='confluent-kafka'"
        if NO_MECHANISM in refusal:
            return "Set sasl.mechanism to one that the listener takes"
        return "Correct its credentials or certificates"

    def _missing_login(self, host: str, port: int) -> AddressFault | None:
        mechanisms = [] if self._has_sasl else self._ask_mechanisms(host, port, self._has_tls)
        if not mechanisms:
            return None
        protocol = "sasl_ssl" if self._has_tls else "sasl_plaintext"
        return AddressFault(
            f"wants a log-in: set security.protocol to {protocol}, and sasl.mechanism to one "
            f"that it offers: {', '.join(mechanisms[:MECHANISMS_LISTED_MAX])}",
            is_final=True,
            property="security.protocol",
        )

    def _require_groups(self, host: str, port: int) -> None:
        if not self._has_new_groups:
            return
        keys = self._ask_api_keys(host, port, self._has_tls)
        if keys and CONSUMER_GROUP_HEARTBEAT not in keys:
            raise RejectedError(
                f"{self._whose} has group.protocol=consumer, and {host}:{port} does not serve "
                "these groups (KIP-848). Set group.protocol=classic",
                reason="no ConsumerGroupHeartbeat",
                address=f"{host}:{port}",
            )

    def _unreachable(
        self, faults: Mapping[str, AddressFault], is_certain: bool
    ) -> UnreachableError:
        reasons = {address: fault.what for address, fault in faults.items()}
        listed = "; ".join(f"{address} {what}" for address, what in reasons.items())
        advice = "Correct " + " or ".join(sorted({fault.property for fault in faults.values()}))
        if not is_certain:
            advice += ", or start the broker"
            if math.isfinite(self._patience_s):
                advice += (
                    f". For a cluster that may come later, give connect_timeout more than "
                    f"{self._patience_s:g} s"
                )
        return UnreachableError(
            f"{self._whose} reaches no broker: {listed}. {advice}",
            reasons=reasons,
            address=next(iter(reasons)),
            action=Action.GIVE_UP if is_certain else Action.RETRY,
        )


def addresses_in(servers: str) -> list[tuple[str, int]]:
    """Read bootstrap.servers as librdkafka does: `[PROTOCOL://]HOST[:PORT]`, with commas."""
    addresses = []
    for text in servers.split(","):
        matched = re.fullmatch(r"(?:\w+://)?(\[[^\]]+\]|[^:\[\]]+)(?::([0-9]+))?/?", text.strip())
        if matched is not None:
            addresses.append((matched[1].strip("[]"), int(matched[2] or DEFAULT_PORT)))
    return addresses


def fault_in(servers: str, security_protocol: str | None = None) -> str | None:
    """Return the reason why bootstrap.servers cannot be read, and its remedy; None if it can.

    librdkafka logs it, leaves out this address and all behind it, and waits for a broker for ever.

    Args:
        servers: Addresses as for `addresses_in`.
        security_protocol: The client's; None: a scheme need not fit to it.
    """
    texts = [text.strip() for text in servers.split(",")]
    for text in filter(None, texts):
        if fault := _fault_of(text, security_protocol):
            return f"{text!r} in {servers!r} {fault}"
    return None if any(texts) else f"{servers!r} names no broker: {ADDRESSES}"


def _fault_of(text: str, security_protocol: str | None) -> str | None:
    scheme, separator, rest = text.rpartition("://")
    if separator and scheme.lower() not in SCHEMES:
        return f"begins with {scheme}://, and a broker's address is no URL: {ADDRESSES}"
    if separator and security_protocol is not None and scheme.lower() != security_protocol.lower():
        return (
            f"begins with {scheme}://, and security.protocol is {security_protocol.lower()}: leave "
            f"the scheme out, and set security.protocol to the one that the listener speaks"
        )
    if " " in rest:
        return f"has a space in it: {ADDRESSES}"
    if re.fullmatch(r"[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*", rest):
        return "is an IPv6 address without brackets: write '[::1]:9092'"
    matched = re.fullmatch(r"(?:\[[^\]]+\]|[^:\[\]/]+)(?::([0-9]+))?/?", rest)
    if matched is None:
        return f"is no HOST:PORT: {ADDRESSES}"
    if matched[1] is not None and not 1 <= int(matched[1]) <= 65535:
        return f"has port {matched[1]}, and ports go from 1 to 65535"
    return None


def look(host: str, port: int, has_tls: bool) -> AddressFault | None:
    """Return the fault of an address; None where a broker answers."""
    try:
        with _connected(host, port) as connection:
            fault = _greet_tls(connection) if has_tls else _greet(connection)
        if fault is None or fault.property != "security.protocol" or fault.is_final:
            return fault
        with _connected(host, port) as connection:
            if has_tls:
                return SPEAKS_NO_TLS if _greet(connection) is None else fault
            return WANTS_TLS if _greet_tls(connection) is None else fault
    except socket.gaierror as error:
        return AddressFault(f"does not resolve ({error.strerror})")
    except ConnectionRefusedError:
        return AddressFault("refuses connections: nothing listens there")
    except TimeoutError:
        return AddressFault("does not answer", is_silence=True)
    except (OSError, OverflowError, UnicodeError) as error:
        return AddressFault(f"cannot be connected to ({getattr(error, 'strerror', None) or error})")


def api_keys_of(host: str, port: int, has_tls: bool) -> frozenset[int]:
    """Return the keys of the requests that a broker serves; empty if it does not list them."""
    try:
        body = _answer(host, port, has_tls, API_VERSIONS)
        _, code, count = struct.unpack_from(">ihi", body)
        if code != 0:
            return frozenset()
        return frozenset(struct.unpack_from(">h", body, 10 + 6 * each)[0] for each in range(count))
    except (OSError, struct.error):
        return frozenset()


def mechanisms_of(host: str, port: int, has_tls: bool) -> list[str]:
    """Return the SASL mechanisms that a listener offers; empty if it wants no log-in."""
    try:
        body = _answer(host, port, has_tls, SASL_HANDSHAKE)
        _, code, count = struct.unpack_from(">ihi", body)
        if code != UNSUPPORTED_SASL_MECHANISM:
            return []
        names, at = [], 10
        for _ in range(count):
            (size,) = struct.unpack_from(">H", body, at)
            names.append(printable(body[at + 2 : at + 2 + size].decode(errors="replace")))
            at += 2 + size
        return names
    except (OSError, struct.error):  # as one that wants to see the client's certificate first
        return []


def _answer(host: str, port: int, has_tls: bool, request: bytes) -> bytes:
    """Return the answer to a request, without its size.

    Raises:
        OSError: the peer closed, has more than `ANSWER_BYTES_MAX`, or takes longer than
            `ANSWER_SECONDS`, as one does that answers byte by byte.
    """
    ends_s = time.monotonic() + ANSWER_SECONDS
    with _connected(host, port) as plain:
        connection = _unverified().wrap_socket(plain) if has_tls else plain
        with connection:
            connection.sendall(request)
            (size,) = struct.unpack(">i", _received(connection, 4, ends_s))
            if not 0 <= size <= ANSWER_BYTES_MAX:
                raise OSError(f"the answer has {size} bytes")
            return _received(connection, size, ends_s)


def _received(connection: socket.socket, count: int, ends_s: float) -> bytes:
    """Receive this many bytes. Raises OSError: the peer closed, or took longer than `ends_s`."""
    received = bytearray()
    while len(received) < count:
        left_s = ends_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("the answer takes too long")
        connection.settimeout(left_s)
        piece = connection.recv(count - len(received))
        if not piece:
            raise ConnectionError("the broker closed the connection")
        received += piece
    return bytes(received)


def _connected(host: str, port: int) -> socket.socket:
    return socket.create_connection((host, port), PROBE_SECONDS)


def _greet(connection: socket.socket) -> AddressFault | None:
    """Ask for the versions of a broker's requests, which every broker answers to everybody."""
    try:
        connection.sendall(API_VERSIONS)
        answer = _first_bytes(connection)
        if answer is None:
            connection.sendall(NUDGE)
            answer = _first_bytes(connection)
            if not answer:
                return AddressFault("accepts connections and answers nothing", is_silence=True)
    except ConnectionError:
        answer = b""
    if answer == b"":
        return AddressFault(
            "closes the connection when spoken to as a broker: check security.protocol",
            property="security.protocol",
        )
    if answer[0] == TLS_ALERT:
        return WANTS_TLS
    if answer.startswith(b"HTTP/") or answer.lstrip().startswith((b"<", b"{")):
        return AddressFault("is an HTTP server, not a broker", is_final=True)
    if len(answer) >= 8 and answer[4:8] == bytes(4) and answer[:2] == bytes(2):
        return None
    return AddressFault(f"answers {answer[:12]!r}, which no broker does", is_final=True)


def _greet_tls(connection: socket.socket) -> AddressFault | None:
    try:
        _unverified().wrap_socket(connection).close()
    except (ssl.SSLEOFError, ConnectionError):
        return AddressFault(
            "closes the connection when spoken to in TLS: check security.protocol",
            property="security.protocol",
        )
    except ssl.SSLError as error:
        if error.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"):
            return SPEAKS_NO_TLS
        return None  # of TLS, so librdkafka reports it
    except TimeoutError:
        return AddressFault(
            "does not answer when spoken to in TLS: check security.protocol",
            is_silence=True,
            property="security.protocol",
        )
    return None


def _unverified() -> ssl.SSLContext:
    """Return a context that takes any certificate: librdkafka verifies."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _first_bytes(connection: socket.socket) -> bytes | None:
    """Return the first bytes that come, b"" if the connection is closed, None if none come."""
    try:
        return connection.recv(64)
    except TimeoutError:
        return None
    except ConnectionError:
        return b""
