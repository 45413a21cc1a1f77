"""Translates a client's security settings from Java's spelling to librdkafka's.

A configuration in librdkafka's own names is passed on untouched, or refused if it has credentials
and no `security.protocol`. One with a name, or a token file, that only Java's client has is read by
`txn.security.client_reader`, and written in librdkafka's names.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final

from txn import _core
from txn.access.stores import OpenKeystore, content_of, key_pem, trusted_pem
from txn.access.tokens import expiry_s, token_call
from txn.errors import ConfigError
from txn.security.client import ClientCredentials, SecuritySettings, Store
from txn.security.client_names import READ, WITHOUT_EFFECT
from txn.security.client_reader import read_security, require_protocol

Settings = dict[str, object]

LIBRDKAFKAS: Final = frozenset(
    """
    enable.sasl.oauthbearer.unsecure.jwt enable.ssl.certificate.verification https.ca.location
    https.ca.pem sasl.mechanism sasl.mechanisms sasl.oauthbearer.client.id
    sasl.oauthbearer.client.secret sasl.oauthbearer.config sasl.oauthbearer.extensions
    sasl.oauthbearer.grant.type sasl.oauthbearer.method sasl.oauthbearer.scope
    sasl.oauthbearer.sub.claim.name sasl.oauthbearer.token.endpoint.url sasl.password sasl.username
    security.protocol ssl.ca.location ssl.ca.pem ssl.certificate.location ssl.certificate.pem
    ssl.endpoint.identification.algorithm ssl.key.location ssl.key.password ssl.key.pem
    ssl.keystore.location ssl.keystore.password
    """.split()
)
JAVAS: Final = (READ | WITHOUT_EFFECT) - LIBRDKAFKAS
"""Names that librdkafka refuses."""

ENDPOINT: Final = "sasl.oauthbearer.token.endpoint.url"

LISTED: Final = re.compile(r"[^,\\\s]*")
"""A value that librdkafka's list of extensions keeps; it splits at commas, unescapes and trims."""

PEM: Final = b"-----BEGIN "
JKS: Final = b"\xfe\xed\xfe\xed"


class TokenCallback:
    """An `oauth_cb` of librdkafka's that txn has made of Java's settings.

    Args:
        call: Returns a token.
        extensions: The SASL extensions that go with it.
    """

    def __init__(self, call: Callable[[], str], extensions: Mapping[str, str]) -> None:
        self._call = call
        self.extensions = extensions

    def __call__(self, _: str) -> tuple[str, float, str, Mapping[str, str]]:
        """Return a token, its end in seconds since 1970, no principal, and the extensions."""
        token = self._call()
        return token, expiry_s(token), "", self.extensions


def in_librdkafkas_names(
    settings: Settings, open_keystore: OpenKeystore = _core.read_keystore
) -> Settings:
    """Return a configuration whose security settings librdkafka knows.

    Raises:
        ConfigError: a setting of Java's is wrong, or librdkafka has nothing like it; the message
            names its own setting. Or there are credentials, and the connection would be plain.
    """
    # librdkafka has the name of the endpoint, and fetches tokens over HTTP alone.
    has_token_file = _text(settings.get(ENDPOINT, "")).strip().startswith("file:")
    if not has_token_file and not any(name in JAVAS for name in settings):
        given = {name for name, value in settings.items() if value not in (None, "")}
        if "security.protocol" not in given:
            require_protocol(given, call=_callback(settings))
        return settings
    about_security = {name: settings[name] for name in settings.keys() & (READ | WITHOUT_EFFECT)}
    # None is no value; its text, in small letters, would turn the check of the host name off.
    read = {name: _text(value) for name, value in about_security.items() if value is not None}
    others = {name: value for name, value in settings.items() if name not in about_security}
    security = read_security(read, call=_callback(settings))
    return dict(librdkafka_settings(security, open_keystore)) | others


def librdkafka_settings(
    security: SecuritySettings, open_keystore: OpenKeystore = _core.read_keystore
) -> Mapping[str, object]:
    """Return the settings of librdkafka for a listener. Raises ConfigError: it has none."""
    settings: dict[str, object] = {"security.protocol": security.protocol}
    if security.is_encrypted:
        authorities = trusted_pem(security.trusted, open_keystore)
        settings |= {
            "ssl.ca.pem": None if authorities is None else authorities.decode("ascii", "replace"),
            "ssl.key.password": security.key_password,
            **_identity(security),
        }
        if not security.check_hostname:
            settings["ssl.endpoint.identification.algorithm"] = "none"
        if not security.check_certificate:
            settings["enable.ssl.certificate.verification"] = "false"
    if security.is_authenticated:
        settings |= {
            "sasl.mechanism": security.mechanism,
            "sasl.username": security.username,
            "sasl.password": security.password,
        }
        if security.token is not None:
            settings |= _token(security, open_keystore)
    return {name: value for name, value in settings.items() if value is not None}


def _identity(security: SecuritySettings) -> Mapping[str, str | None]:
    store = security.keystore
    if store is not None:
        content = content_of(store)
        if PEM in content:
            return {"ssl.certificate.location": store.location, "ssl.key.location": store.location}
        if content.startswith(JKS):
            raise ConfigError(
                f"{store.setting} is a JKS, which librdkafka does not read. Convert it to PKCS12: "
                "keytool -importkeystore -srckeystore OLD -destkeystore NEW -deststoretype PKCS12",
                property=store.setting,
            )
        return {"ssl.keystore.location": store.location, "ssl.keystore.password": store.password}
    if security.certificate is None or security.key is None:
        return {}
    return _certificate(security.certificate) | {"ssl.key.pem": key_pem(security.key).decode()}


def _certificate(store: Store) -> dict[str, str | None]:
    if store.location is not None:
        return {"ssl.certificate.location": store.location}
    text = content_of(store).decode()
    if text.count("-----BEGIN CERTIFICATE-----") > 1:
        raise ConfigError(
            f"{store.setting} holds a chain, and librdkafka's ssl.certificate.pem takes one "
            "certificate. Put the chain in a file, and set ssl.certificate.location",
            property=store.setting,
        )
    return {"ssl.certificate.pem": text}


def _token(security: SecuritySettings, open_keystore: OpenKeystore) -> Mapping[str, object]:
    source = security.token
    assert source is not None, "it was checked"
    is_listed = all(LISTED.fullmatch(value) for _, value in security.extensions)
    if not isinstance(source, ClientCredentials) or source.encodes_header or not is_listed:
        call = token_call(source, open_keystore)
        return {"oauth_cb": TokenCallback(call, dict(security.extensions))}
    authorities = trusted_pem(source.trusted, open_keystore)
    listed = ",".join(f"{name}={value}" for name, value in security.extensions)
    return {
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": source.endpoint,
        "sasl.oauthbearer.client.id": source.client_id,
        "sasl.oauthbearer.client.secret": source.client_secret,
        "sasl.oauthbearer.scope": source.scope,
        "sasl.oauthbearer.extensions": listed or None,
        "https.ca.pem": None if authorities is None else authorities.decode("ascii", "replace"),
    }


def _callback(settings: Settings) -> Callable[[], str] | None:
    """A function in the place of `oauth_cb`, which takes and returns more than a token."""
    return None if settings.get("oauth_cb") is None else str


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
