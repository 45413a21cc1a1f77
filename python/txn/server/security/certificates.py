"""The certificates of listeners with TLS: read from files or settings, and read again.

A changed file is read again within `CHECK_MS`, or at once by `reload`. Open connections keep their
certificate. If a new file cannot be used, the previous certificate stays, and a log line says so.

| setting | meaning |
|---|---|
| `ssl.keystore.location` | a PEM file with the certificate chain and the private key |
| `ssl.keystore.certificate.chain`, `ssl.keystore.key` | the same as text |
| `ssl.truststore.location`, `ssl.truststore.certificates` | the issuers of client certificates |

Each may be set for one listener, as `listener.name.NAME.ssl.keystore.location`. A listener of
SASL_SSL asks for client certificates only by its own `ssl.client.auth`, as in Kafka. They determine
no principal there: the log-in does.

Deviations from Apache Kafka: certificates are PEM, and `ssl.keystore.type` is PEM if it is not
given. A truststore is needed where clients are asked for certificates; Java has one of its own.
"""

import os
import stat
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, NoReturn, Self

from txn import _core
from txn.config import LISTENER_PREFIX, BrokerSettings, split_list
from txn.errors import ConfigError
from txn.logs import log
from txn.security.listeners import ListenerSpec
from txn.security.sessions import ANONYMOUS, is_tls
from txn.server.settings.small_files import read_small_file, reason_of

CHECK_MS: Final = 3000
"""The time between two looks at the files, in milliseconds."""

CLIENT_AUTH: Final = "ssl.client.auth"
NO_CLIENT_AUTH: Final = "none"

LOCATIONS: Final = ("ssl.keystore.location", "ssl.truststore.location")

Fingerprint = tuple[tuple[int, ...] | None, ...]
"""Device, inode, size and time of change of each file; None: it cannot be looked at."""


class TlsFiles(NamedTuple):
    """The certificates of a listener; `_core.TlsContext` takes it."""

    certificate_chain: bytes
    key: bytes
    key_password: str | None
    trusted: bytes
    client_auth: str
    protocols: Sequence[str]
    cipher_suites: Sequence[str]


class Certificates:
    """The certificates of every listener with TLS. Any thread may call it."""

    def __init__(self, listeners: Mapping[str, "_ListenerTls"]) -> None:
        self._reading = threading.Lock()
        self._listeners = listeners

    @classmethod
    def load(cls, settings: BrokerSettings, specs: Sequence[ListenerSpec]) -> Self:
        """Read those of the listeners that speak TLS. Raises ConfigError."""
        sources = (
            _Source(spec.name, settings, is_sasl=spec.is_sasl)
            for spec in specs
            if is_tls(spec.security_protocol)
        )
        return cls({source.name: _ListenerTls.load(source) for source in sources})

    def __bool__(self) -> bool:
        return bool(self._listeners)

    def context(self, listener: str) -> _core.TlsContext | None:
        """The TLS of a listener; None: it is plain."""
        one = self._listeners.get(listener)
        return None if one is None else one.context

    def check(self) -> None:
        """Read again the files that have changed."""
        with self._reading:
            for one in self._listeners.values():
                one.check()

    def reload(self) -> None:
        """Read every file again."""
        with self._reading:
            for one in self._listeners.values():
                one.reload()


class _ListenerTls:
    """The certificates of one listener."""

    def __init__(
        self, source: "_Source", context: _core.TlsContext, fingerprint: Fingerprint
    ) -> None:
        self._source = source
        self.context = context
        self._fingerprint = fingerprint

    @classmethod
    def load(cls, source: "_Source") -> Self:
        fingerprint = source.fingerprint()
        mapper = source.principal_mapper()
        try:
            context = _core.TlsContext(source.read(), mapper)
        except ValueError as error:
            source.refuse(str(error))
        loaded = cls(source, context, fingerprint)
        loaded._log_expiry()
        source.warn_of_no_effect()
        return loaded

    def check(self) -> None:
        if self._source.fingerprint() != self._fingerprint:
            self.reload()

    def reload(self) -> None:
        self._fingerprint = self._source.fingerprint()  # first: a change from here on is seen
        try:
            self.context.replace(self._source.read())
        except (ConfigError, ValueError) as error:
            name = self._source.name
            log.error("tls.certificate_not_loaded", listener=name, reason=str(error))
        else:
            self._log_expiry()

    def _log_expiry(self) -> None:
        name, expires_at = self._source.name, self.context.expires_at
        until = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(expires_at))
        if expires_at <= time.time():
            log.warning("tls.certificate_expired", listener=name, since=until)
        else:
            log.info("tls.certificate_loaded", listener=name, until=until)


class _Source:
    """The settings of one listener, and the files that they name."""

    def __init__(self, name: str, settings: BrokerSettings, *, is_sasl: bool) -> None:
        self.name = name
        self._settings = settings
        self._is_sasl = is_sasl

    def principal_mapper(self) -> Callable[[str], str | None]:
        from txn.security.principals import SETTING, principal_mapper  # few brokers have TLS

        mapper = principal_mapper(self._setting(SETTING) or "")
        return _anonymous if self._is_sasl else mapper

    def warn_of_no_effect(self) -> None:
        """Warn if the broker asks for client certificates, and this listener does not."""
        given = self._setting(CLIENT_AUTH)
        if given not in (None, NO_CLIENT_AUTH) and self._client_auth() != given:
            log.warning(
                "tls.client_auth_not_used",
                listener=self.name,
                reason=f"{CLIENT_AUTH} counts for listeners of SSL. Give "
                f"{LISTENER_PREFIX}{self.name.lower()}.{CLIENT_AUTH} to ask for certificates "
                "beside SASL",
            )

    def _client_auth(self) -> str:
        is_own = (self.name.lower(), CLIENT_AUTH) in self._settings.listener_settings()
        if self._is_sasl and not is_own:
            return NO_CLIENT_AUTH
        return self._setting(CLIENT_AUTH) or NO_CLIENT_AUTH

    def _setting(self, name: str) -> str | None:
        value: str | None = self._settings.of_listener(self.name, name)
        return value

    def fingerprint(self) -> Fingerprint:
        return tuple(
            _file_state(path) for path in map(self._setting, LOCATIONS) if path is not None
        )

    def read(self) -> TlsFiles:
        """Read the files. Raises ConfigError."""
        chain, key = self._keystore()
        client_auth = self._client_auth()
        trusted = self._pem("ssl.truststore.location", "ssl.truststore.certificates")
        if client_auth != NO_CLIENT_AUTH and trusted is None:
            self.refuse(
                f"{CLIENT_AUTH}={client_auth} takes ssl.truststore.location or "
                "ssl.truststore.certificates, the issuers of client certificates"
            )
        return TlsFiles(
            chain,
            key,
            self._setting("ssl.key.password"),
            trusted or b"",
            client_auth,
            split_list(self._setting("ssl.enabled.protocols") or ""),
            split_list(self._setting("ssl.cipher.suites") or ""),
        )

    def _keystore(self) -> tuple[bytes, bytes]:
        text = self._pem("ssl.keystore.location", "ssl.keystore.certificate.chain")
        key = self._setting("ssl.keystore.key")
        location = self._setting("ssl.keystore.location")
        if text is None:
            self.refuse(
                "it takes a certificate: ssl.keystore.location, or ssl.keystore.certificate.chain "
                "and ssl.keystore.key"
            )
        if location is not None:
            if key is not None:
                self.refuse("ssl.keystore.key stands beside ssl.keystore.location: give one")
            _warn_if_readable(location)
            return text, text
        if key is None:
            self.refuse("ssl.keystore.certificate.chain stands without ssl.keystore.key")
        return text, key.encode()

    def _pem(self, location: str, text: str) -> bytes | None:
        path, given = self._setting(location), self._setting(text)
        if path is not None and given is not None:
            self.refuse(f"{text} stands beside {location}: give one")
        if path is None:
            return None if given is None else given.encode()
        try:
            return read_small_file(path)
        except (OSError, ValueError) as error:
            self.refuse(f"{location}={path} cannot be read: {reason_of(error)}")

    def refuse(self, reason: str) -> NoReturn:
        raise ConfigError(f"listener {self.name} cannot speak TLS: {reason}")


def _anonymous(_subject: str) -> str:
    """The principal of a client whose certificate has no name."""
    return ANONYMOUS


def _file_state(path: str) -> tuple[int, ...] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _warn_if_readable(path: str) -> None:
    """Warn about a private key that other users may read."""
    found = os.stat(path)
    mode = stat.S_IMODE(found.st_mode)
    open_to = stat.S_IROTH
    if found.st_uid == os.geteuid():  # a key of another owner, such as root, is read by its group
        open_to |= stat.S_IRGRP
    if mode & open_to:
        log.warning("tls.key_readable_by_others", path=path, mode=f"{mode:04o}")
