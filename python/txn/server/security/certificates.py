"""The certificates of listeners with TLS: read from files or settings, and read again.

A changed file is read again within `CHECK_MS`, or at once by `reload` and by AlterConfigs, which
also changes the settings of a listener. Open connections keep their certificate. If a new file
cannot be used, the previous certificate stays, and a log line says so.

| setting | meaning |
|---|---|
| `ssl.keystore.location` | a file with the certificate chain and the private key |
| `ssl.keystore.certificate.chain`, `ssl.keystore.key` | the same as text |
| `ssl.truststore.location`, `ssl.truststore.certificates` | the issuers of client certificates |
| `ssl.keystore.password`, `ssl.truststore.password` | the passwords of files in PKCS12 |

Each may be set for one listener, as `listener.name.NAME.ssl.keystore.location`. A listener of
SASL_SSL asks for client certificates only by its own `ssl.client.auth`, as in Kafka. They determine
no principal there: the log-in does.

Deviations from Apache Kafka: a file is PEM or PKCS12, whatever `ssl.keystore.type` says; Java's own
form (JKS) is refused. A truststore is needed where clients are asked for certificates; Java has one
of its own. A file that changes at its path is read by itself, and may name another subject. An
alteration of settings may change the subject only with `ssl.allow.dn.changes=true`, and drop names
only with `ssl.allow.san.changes=true`, as in Kafka.
"""

import os
import stat
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, NoReturn, Self

from txn import _core
from txn.config import LISTENER_PREFIX, STORE_PROPERTIES, BrokerSettings, fits, split_list
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

_PEM: Final = b"-----BEGIN "

Fingerprint = tuple[object, ...]
"""The settings of a listener; device, inode, size and time of change of each file, None: it cannot
be looked at."""


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

    def require(self, own: Mapping[str, str], changes: Mapping[str, str | None]) -> None:
        """Refuse changes of the broker's settings that leave a listener without a certificate.

        Args:
            own: The altered settings of the broker before the changes. Alterations that are still
                on their way to the disk are among them.
            changes: Setting → new value; None removes it. Settings of other things are ignored.

        Raises:
            ConfigError: a listener that the changes name cannot speak TLS with them.
        """
        altered = {name: text for name, text in {**own, **changes}.items() if text is not None}
        for one in self._listeners.values():
            one.require(altered, changes)

    def check(self) -> None:
        """Read again the files that have changed, and those that other settings name now."""
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
        loaded = cls(source, source.made(), fingerprint)
        loaded._log_expiry()
        source.warn_of_no_effect()
        return loaded

    def require(self, altered: Mapping[str, str], changes: Iterable[str]) -> None:
        if self._source.is_named(changes):
            source = self._source.altered(altered)
            source.require_identity(self.context, source.made())

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

    def __init__(
        self,
        name: str,
        settings: BrokerSettings,
        *,
        is_sasl: bool,
        altered: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self._prefix = f"{LISTENER_PREFIX}{name.lower()}."
        self._settings = settings
        self._is_sasl = is_sasl
        self._altered = altered
        """Altered settings of the broker in place of the published ones."""

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

    def _setting(self, name: str) -> Any:
        """The value of a setting for this listener."""
        if self._altered is None or name not in STORE_PROPERTIES:
            return self._settings.of_listener(self.name, name)
        own = f"{self._prefix}{name}"
        text = self._altered.get(own)
        if text is not None and fits(STORE_PROPERTIES[name], text):
            return STORE_PROPERTIES[name].parse(text)
        given = self._settings.given  # the value of the start counts
        return given[own] if own in given else self._settings[name]

    def is_named(self, settings: Iterable[str]) -> bool:
        """Say whether a setting of this listener's certificates is among some."""
        own = {f"{self._prefix}{name}" for name in STORE_PROPERTIES}
        return not own.isdisjoint(settings)

    def altered(self, altered: Mapping[str, str]) -> "_Source":
        """The source with other altered settings of the broker."""
        return _Source(self.name, self._settings, is_sasl=self._is_sasl, altered=altered)

    def made(self) -> _core.TlsContext:
        """Read the files, and make a context of them. Raises ConfigError."""
        try:
            return _core.TlsContext(self.read(), self.principal_mapper())
        except ValueError as error:
            self.refuse(str(error))

    def require_identity(self, before: _core.TlsContext, after: _core.TlsContext) -> None:
        """Refuse a certificate of another owner. Raises ConfigError.

        Clients may know the broker by its subject, and reach it by each of its names.
        """
        (subject, names), (new_subject, new_names) = before.identity, after.identity
        if subject != new_subject and not self._setting("ssl.allow.dn.changes"):
            self.refuse(
                f"the certificate is of {new_subject}, and the one in use of {subject}; "
                "ssl.allow.dn.changes=true allows another subject"
            )
        if not {*names} <= {*new_names} and not self._setting("ssl.allow.san.changes"):
            self.refuse(
                "the certificate lacks alternative names of the one in use; "
                "ssl.allow.san.changes=true allows other names"
            )

    def fingerprint(self) -> Fingerprint:
        paths = (path for path in map(self._setting, LOCATIONS) if path is not None)
        return (*map(self._setting, STORE_PROPERTIES), *map(_file_state, paths))

    def read(self) -> TlsFiles:
        """Read the files. Raises ConfigError."""
        chain, key, key_password = self._keystore()
        client_auth = self._client_auth()
        trusted = self._trusted()
        if client_auth != NO_CLIENT_AUTH and trusted is None:
            self.refuse(
                f"{CLIENT_AUTH}={client_auth} takes ssl.truststore.location or "
                "ssl.truststore.certificates, the issuers of client certificates"
            )
        return TlsFiles(
            chain,
            key,
            key_password,
            trusted or b"",
            client_auth,
            split_list(self._setting("ssl.enabled.protocols") or ""),
            split_list(self._setting("ssl.cipher.suites") or ""),
        )

    def _trusted(self) -> bytes | None:
        content = self._content("ssl.truststore.location", "ssl.truststore.certificates")
        if content is None or _PEM in content:
            return content
        trusted, chain, _ = self._opened("ssl.truststore", content)
        if trusted is None and chain is None:
            self.refuse("the file of ssl.truststore.location has no certificate")
        return trusted or chain

    def _keystore(self) -> tuple[bytes, bytes, str | None]:
        """The certificate with its chain, the key, and the key's password."""
        password = self._setting("ssl.key.password")
        text = self._content("ssl.keystore.location", "ssl.keystore.certificate.chain")
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
            if _PEM in text:
                return text, text, password
            _, chain, opened = self._opened("ssl.keystore", text)
            if chain is None or opened is None:
                self.refuse(f"ssl.keystore.location={location} has no key with its certificate")
            return chain, opened, None
        if key is None:
            self.refuse("ssl.keystore.certificate.chain stands without ssl.keystore.key")
        return text, key.encode(), password

    def _opened(
        self, store: str, content: bytes
    ) -> tuple[bytes | None, bytes | None, bytes | None]:
        """The certificates to trust, the certificate with its chain, the key of a PKCS12 file."""
        location, password = self._setting(f"{store}.location"), self._setting(f"{store}.password")
        try:
            return _core.read_keystore(content, password)
        except ValueError as error:
            self.refuse(f"{store}.location={location} cannot be opened: {error}")

    def _content(self, location: str, text: str) -> bytes | None:
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
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _warn_if_readable(path: str) -> None:
    """Warn about a private key that other users may read."""
    found = os.stat(path)
    mode = stat.S_IMODE(found.st_mode)
    open_to = stat.S_IROTH
    if found.st_uid == os.geteuid():  # a key of another owner, such as root, is read by its group
        open_to |= stat.S_IRGRP
    if mode & open_to:
        log.warning("tls.key_readable_by_others", path=path, mode=f"{mode:04o}")
