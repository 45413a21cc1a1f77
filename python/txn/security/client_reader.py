"""Reads a client's security settings, in Java's spelling and in librdkafka's.

Pure: names and values go in, `SecuritySettings` or a ConfigError comes out; no file is opened.
`txn.access` reads the files.

| | |
|---|---|
| two spellings of one setting, in any case, with different values | refused, both are named |
| a setting that would change trust and cannot be honoured (`ssl.crl.location`) | refused |
| a setting that tunes Java or librdkafka (`sasl.login.refresh.*`) | without effect |
| an unknown `ssl.*`, `sasl.*` or `security.*` | refused, with the nearest known name |
| credentials without `security.protocol` | refused: the connection would be plain |

No message has a value that could be a secret; those of protocols, mechanisms and types are shown.

Sources: the login modules of Apache Kafka 4.2; KIP-342 (extensions), KIP-651 (PEM), KIP-768 (OIDC).
"""

import re
from collections.abc import Callable, Iterable, Mapping
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from txn.errors import ConfigError
from txn.hints import did_you_mean
from txn.security.client import (
    PLAIN,
    ClientCredentials,
    SecuritySettings,
    StaticToken,
    Store,
    TokenCall,
    TokenFile,
    TokenSource,
    UnsecuredToken,
)
from txn.security.client_names import (
    AWS,
    FAMILIES,
    GSSAPI_REFUSED,
    MECHANISMS,
    MODULES,
    OAUTH_HANDLER,
    OAUTH_OPTIONS,
    PROTOCOLS,
    READ,
    REFUSED,
    RETRIEVERS,
    STORE_TYPES,
    UNSECURED,
    WITHOUT_EFFECT,
)
from txn.security.jaas import LoginModule, parse_jaas

EXTENSION_NAME: Final = re.compile(r"(?!auth\Z)[A-Za-z]+")
EXTENSION_VALUE: Final = re.compile(r"[\x20-\x7e\t\r\n]+")
WORD: Final = re.compile(r"[A-Za-z0-9._-]{0,40}")
"""A value that a message repeats."""

PEM_BLOCK: Final = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----([A-Za-z0-9+/=\s]+)-----END \1-----\s*")


def is_about_security(name: str) -> bool:
    """Return True if `read_security` reads or refuses a property of this name."""
    return name.lower().startswith(FAMILIES)


def read_security(
    properties: Mapping[str, str], *, prefix: str = "", call: Callable[[], str] | None = None
) -> SecuritySettings:
    """Read the settings of a client's connections; names of other families are passed over.

    Args:
        properties: By Kafka's names or librdkafka's, without `prefix`.
        prefix: Goes before every name in a message: `kafka.` for Spark's options.
        call: Returns a token for OAUTHBEARER, in place of settings for one.

    Raises:
        ConfigError: a setting is unknown, cannot be honoured, is missing, or contradicts another.
    """
    reader = _Reader(properties, prefix)
    protocol = reader.choice("security.protocol", PROTOCOLS)
    if protocol is None:
        require_protocol(reader.given, prefix=prefix, call=call)
    protocol = protocol or "PLAINTEXT"
    tls = reader.tls() if protocol.endswith("SSL") else PLAIN
    sasl = reader.sasl(call) if protocol.startswith("SASL") else PLAIN
    return SecuritySettings(
        protocol,
        trusted=tls.trusted,
        keystore=tls.keystore,
        certificate=tls.certificate,
        key=tls.key,
        key_password=tls.key_password,
        check_hostname=tls.check_hostname,
        check_certificate=tls.check_certificate,
        mechanism=sasl.mechanism,
        username=sasl.username,
        password=sasl.password,
        token=sasl.token,
        extensions=sasl.extensions,
    )


def require_protocol(given: Iterable[str], *, call: object, prefix: str = "") -> None:
    """Refuse credentials without `security.protocol`, whose default is PLAINTEXT.

    Args:
        given: The names of the settings with a value, without `prefix`; unknown ones do not count.
        call: Returns a token, or None.
        prefix: Goes before every name in the message.

    Raises:
        ConfigError: there is something to protect.
    """
    names = [name for name in sorted(given) if name in READ or _why_refused(name)]
    if call is None and all(each.startswith(("enable.", "https.")) for each in names):
        return
    wanted = "SASL_SSL" if call or any(e.startswith("sasl.") for e in names) else "SSL"
    first = f"{prefix}{names[0]}" if names else "a token"
    raise _error(
        prefix,
        "security.protocol",
        f"is missing though {first} is given, so the connection would be plain: set it to "
        f"{wanted}, or to PLAINTEXT if that is meant",
    )


def _error(prefix: str, name: str, rest: str, value: object = None) -> ConfigError:
    full = prefix + name
    attribute = "option" if prefix else "property"
    return ConfigError(f"{full} {rest}", **{attribute: full, "value": value})


def _why_refused(name: str) -> str | None:
    """The reason that a setting cannot be honoured; None for other names."""
    for refused, why in REFUSED.items():
        if name == refused or (refused.endswith(".") and name.startswith(refused)):
            return why
    return None


class _Reader:
    """The settings of one client; a value is asked for by all names that it goes by."""

    def __init__(self, properties: Mapping[str, str], prefix: str) -> None:
        self._prefix = prefix
        self._given: dict[str, str] = {}
        names: dict[str, str] = {}
        for name, value in properties.items():
            known = name.lower()
            # Kafka turns the check of the host off by the empty text.
            is_given = value != "" or known == "ssl.endpoint.identification.algorithm"
            if is_given and is_about_security(name):
                first = names.setdefault(known, name)
                self._given[known] = value
                self._one({first: properties[first], name: value})
        for name in self._given:
            self._require_known(name)

    def error(self, name: str, rest: str, value: object = None) -> ConfigError:
        """Return an error about a setting: its name, then the rest of the sentence."""
        return _error(self._prefix, name, rest, value)

    @property
    def given(self) -> Iterable[str]:
        """The names of the settings with a value, in small letters."""
        return [name for name, value in self._given.items() if value]

    def _require_known(self, name: str) -> None:
        if name in READ or name in WITHOUT_EFFECT:
            return
        why = _why_refused(name)
        if why is not None:
            raise self.error(name, f"is refused: {why}")
        known = [self._prefix + each for each in sorted(READ)]
        hint = did_you_mean(self._prefix + name, known) or ". Remove it"
        raise ConfigError(
            f"unknown security setting {self._prefix + name!r}{hint}",
            **{"option" if self._prefix else "property": self._prefix + name},
        )

    # ------------------------------------------------------------ values

    def text(self, *names: str) -> str | None:
        """The value that goes by these names."""
        return self._one({name: self._given[name] for name in names if name in self._given})

    def _one(self, values: Mapping[str, str]) -> str | None:
        if len(set(values.values())) > 1:
            first, second = list(values)[:2]
            raise self.error(
                first,
                f"and {self._prefix}{second} have different values and mean the same: give one",
            )
        return next(iter(values.values()), None)

    def choice(self, name: str, allowed: Iterable[str]) -> str | None:
        """One of some words, in any case of letters."""
        text = self.text(name)
        words = {word.lower(): word for word in allowed}
        if text is None or text.strip().lower() in words:
            return None if text is None else words[text.strip().lower()]
        listed = ", ".join(words.values())
        hint = did_you_mean(text, words.values())
        raise self.refused(name, text, f"it takes {listed}{hint}")

    def refused(self, name: str, text: str, rest: str) -> ConfigError:
        """Return an error about a word; a text that is none may be a secret in a wrong place."""
        if WORD.fullmatch(text):
            return self.error(name, f"cannot be {text!r}: {rest}", text)
        return self.error(name, f"has a value that is left out here, for it is no word: {rest}")

    def flag(self, name: str, default: bool) -> bool:
        """True or false."""
        chosen = self.choice(name, ("true", "false"))
        return default if chosen is None else chosen == "true"

    def store(self, location: str, text: str, password: str | None = None) -> Store | None:
        """Certificates or a key, by one of two names."""
        secret = None if password is None else self.text(password)
        path, pem = self._given.get(location), self._given.get(text)
        if path is not None and pem is not None:
            raise self.error(location, f"and {self._prefix}{text} are two sources: give one")
        if path is not None:
            return Store(self._prefix + location, location=path, password=secret)
        if pem is not None:
            return Store(self._prefix + text, text=_as_pem(pem), password=secret)
        return None

    # ------------------------------------------------------------ TLS

    def tls(self) -> SecuritySettings:
        """The settings of TLS, in a value without the rest."""
        self._require_versions()
        self.choice("ssl.truststore.type", STORE_TYPES)
        self.choice("ssl.keystore.type", STORE_TYPES)
        keystore, certificate, key = self._identity()
        return SecuritySettings(
            trusted=self._single(
                self.store(
                    "ssl.truststore.location",
                    "ssl.truststore.certificates",
                    "ssl.truststore.password",
                ),
                self.store("ssl.ca.location", "ssl.ca.pem"),
            ),
            keystore=keystore,
            certificate=certificate,
            key=key,
            key_password=self.text("ssl.key.password"),
            check_hostname=self._checks_hostname(),
            check_certificate=self.flag("enable.ssl.certificate.verification", True),
        )

    def _identity(self) -> tuple[Store | None, Store | None, Store | None]:
        location = self.text("ssl.keystore.location")
        keystore = None
        if location is not None:
            keystore = Store(
                f"{self._prefix}ssl.keystore.location",
                location=location,
                password=self.text("ssl.keystore.password"),
            )
        certificate = self._single(
            self.store("ssl.certificate.location", "ssl.certificate.pem"),
            self._pem("ssl.keystore.certificate.chain"),
        )
        key = self._single(
            self.store("ssl.key.location", "ssl.key.pem"), self._pem("ssl.keystore.key")
        )
        self._single(keystore, certificate or key)
        if (certificate is None) != (key is None):
            one = certificate or key
            assert one is not None, "one of the two is given"
            raise self.error(
                one.setting.removeprefix(self._prefix),
                "is given without its other half: a client certificate is a certificate "
                "(ssl.certificate.location) and a key (ssl.key.location)",
            )
        return keystore, certificate, key

    def _pem(self, name: str) -> Store | None:
        text = self._given.get(name)
        return None if text is None else Store(self._prefix + name, text=_as_pem(text))

    def _single(self, *stores: Store | None) -> Store | None:
        given = [store for store in stores if store is not None]
        places = {(store.location, store.text) for store in given}
        if len(places) > 1:
            raise self.error(
                given[0].setting.removeprefix(self._prefix),
                f"and {given[1].setting} are two sources: give one",
            )
        return given[0] if given else None

    def _checks_hostname(self) -> bool:
        name = "ssl.endpoint.identification.algorithm"
        text = self._given.get(name, "https").strip().lower()
        if text not in ("", "none", "https"):
            raise self.refused(name, text, "it takes https, or none")
        return text == "https"

    def _require_versions(self) -> None:
        text = self.text("ssl.enabled.protocols")
        if text is not None and "tlsv1.2" not in re.split(r"[,\s]+", text.lower()):
            raise self.error(
                "ssl.enabled.protocols",
                "cannot be honoured: TLS 1.3 and 1.2 are both offered, and the broker takes the "
                "higher. Remove it, or limit the broker's listener",
                text,
            )

    # ------------------------------------------------------------ SASL

    def sasl(self, call: Callable[[], str] | None) -> SecuritySettings:
        """The settings of SASL, in a value without the rest."""
        jaas = self._given.get("sasl.jaas.config")
        module = None if jaas is None else self._module(jaas)
        mechanism = self._mechanism(module, call)
        self._require_module(module, mechanism)
        if mechanism == "OAUTHBEARER":
            options = {} if module is None else module.options
            token = self._token(options, call)
            return SecuritySettings(
                mechanism=mechanism, token=token, extensions=self._extensions(options)
            )
        username = self._credential("sasl.username", "username", module)
        password = self._credential("sasl.password", "password", module)
        return SecuritySettings(mechanism=mechanism, username=username, password=password)

    def _module(self, text: str) -> LoginModule:
        try:
            return parse_jaas(text)
        except ConfigError as fault:
            said = str(fault).removeprefix("sasl.jaas.config ")
            raise self.error("sasl.jaas.config", said) from None

    def _mechanism(self, module: LoginModule | None, call: object) -> str:
        texts: dict[str, str] = {
            name: self._given[name].strip().upper()
            for name in ("sasl.mechanism", "sasl.mechanisms")
            if name in self._given
        }
        text = self._one(texts)
        name = next(iter(texts), "sasl.mechanism")
        if text is None:
            fitting = MODULES.get(module.name if module else "", MECHANISMS)
            fitting = ("OAUTHBEARER",) if call else fitting
            raise self.error(
                name,
                f"is missing: set it to {', or to '.join(fitting)} (Kafka's default is GSSAPI, "
                "which is not supported)",
            )
        if text == "GSSAPI":
            raise self.error(name, f"cannot be GSSAPI: {GSSAPI_REFUSED}", text)
        if text == "AWS_MSK_IAM":
            raise self.error(name, f"cannot be AWS_MSK_IAM: {AWS}", text)
        if text not in MECHANISMS:
            hint = did_you_mean(text, MECHANISMS)
            listed = ", ".join(MECHANISMS)
            raise self.refused(name, text, f"it takes {listed}{hint}")
        return text

    def _require_module(self, module: LoginModule | None, mechanism: str) -> None:
        if module is None:
            return
        if module.name == "Krb5LoginModule":
            raise self.error("sasl.jaas.config", f"names Kerberos' module: {GSSAPI_REFUSED}")
        if module.name == "IAMLoginModule":
            raise self.error("sasl.jaas.config", f"names a module of Amazon's: {AWS}")
        fitting = MODULES.get(module.name)
        if fitting is None:
            raise self.error(
                "sasl.jaas.config",
                f"names a login module that is not known here: it takes {', '.join(MODULES)}",
            )
        if mechanism not in fitting:
            raise self.error(
                "sasl.jaas.config",
                f"is for {' or '.join(fitting)} ({module.name}), and sasl.mechanism is "
                f"{mechanism}: make them agree",
            )
        if module.options.get("tokenauth", "false").lower() == "true":
            raise self.error(
                "sasl.jaas.config",
                "asks for a delegation token (tokenauth), which is not supported. Give a user's "
                "name and password",
            )

    def _credential(self, name: str, option: str, module: LoginModule | None) -> str:
        values = {name: self._given[name]} if name in self._given else {}
        if module is not None and module.options.get(option):
            values["sasl.jaas.config"] = module.options[option]
        value = self._one(values)
        if not value:
            where = (
                f"sasl.jaas.config has no {option}" if module else "there is no sasl.jaas.config"
            )
            raise self.error(
                name, f"is missing, and {where}: the mechanism needs a user's name and password"
            )
        return value

    # ------------------------------------------------------------ OAUTHBEARER

    def _token(self, options: Mapping[str, str], call: Callable[[], str] | None) -> TokenSource:
        self._require_flow(options)
        sources: dict[str, TokenSource] = {}
        if call is not None:
            sources["a function that returns the token"] = TokenCall(call)
        static = self.text("sasl.oauthbearer.token")
        if static is not None:
            sources[f"{self._prefix}sasl.oauthbearer.token"] = StaticToken(static)
        endpoint = self.text("sasl.oauthbearer.token.endpoint.url")
        if endpoint is not None:
            name = f"{self._prefix}sasl.oauthbearer.token.endpoint.url"
            sources[name] = self._endpoint(endpoint, options)
        unsecured = self._unsecured(options)
        if unsecured is not None and not sources:
            sources["an unsecured token"] = unsecured
        named = list(sources)
        if endpoint is None:  # then no request is made with the client's secret
            secrets = self._client_values("client.secret", "clientSecret", options)
            named += [self._prefix + each for each in secrets]
        if sources and len(named) > 1:
            first, second = named[:2]
            raise self.error(
                "sasl.mechanism",
                f"OAUTHBEARER gets its token from one place, not from {first} "
                f"and {second}: give one",
            )
        if not sources:
            raise self.error(
                "sasl.mechanism",
                "OAUTHBEARER needs a token: set sasl.oauthbearer.token.endpoint.url with the "
                "client's id and secret (OIDC), the same to file:/PATH for a token in a file, or "
                "sasl.oauthbearer.token; in a program, give a function",
            )
        return next(iter(sources.values()))

    def _require_flow(self, options: Mapping[str, str]) -> None:
        """Refuse other ways to a token than client credentials."""
        unknown = [
            name
            for name in options
            if name not in OAUTH_OPTIONS and not name.startswith((UNSECURED, "extension_"))
        ]
        if unknown:
            raise self.error(
                "sasl.jaas.config",
                "has an option that OAuthBearerLoginModule does not take: it takes "
                f"{', '.join(sorted(OAUTH_OPTIONS))} and extension_NAME",
            )
        self.choice("sasl.oauthbearer.method", ("default", "oidc"))
        self.choice("sasl.oauthbearer.grant.type", ("client_credentials",))
        for name, known in (
            ("sasl.login.callback.handler.class", {OAUTH_HANDLER}),
            ("sasl.oauthbearer.jwt.retriever.class", RETRIEVERS),
        ):
            text = self.text(name)
            if text is not None and text.rpartition(".")[2] not in known:
                raise self.error(
                    name,
                    "names a Java class that is not used here. Set "
                    "sasl.oauthbearer.token.endpoint.url with the client's id and secret, or give "
                    "a function that returns the token",
                )

    def _endpoint(self, endpoint: str, options: Mapping[str, str]) -> TokenSource:
        name = "sasl.oauthbearer.token.endpoint.url"
        try:
            parts = urlsplit(endpoint.strip())
            host, port = parts.hostname or "", parts.port
        except ValueError:
            raise self.error(name, "is no URL: it takes https://HOST/PATH") from None
        if parts.scheme == "file" and parts.path and host in ("", "localhost"):
            return TokenFile(parts.path)
        if parts.scheme not in ("https", "http") or not host or port == 0:
            raise self.error(name, "is no URL of an endpoint: it takes https://HOST/PATH")
        if parts.username is not None or parts.password is not None:
            raise self.error(
                name,
                "may hold no user: give the client's id and secret by "
                "sasl.oauthbearer.client.credentials.client.id and .client.secret",
            )
        if parts.scheme == "http" and not _is_loopback(host):
            raise self.error(
                name, "is not encrypted, and the client's secret goes there: it takes https://"
            )
        return ClientCredentials(
            endpoint.strip(),
            self._client("client.id", "clientId", options),
            self._client("client.secret", "clientSecret", options),
            self._scope(options),
            self._authorities(options),
            self.flag("sasl.oauthbearer.header.urlencode", False),
        )

    def _client(self, name: str, option: str, options: Mapping[str, str]) -> str:
        value = self._one(self._client_values(name, option, options))
        if value is None:
            raise self.error(
                f"sasl.oauthbearer.client.credentials.{name}",
                "is missing: the token endpoint gives a token for a client's id and secret",
            )
        return value

    def _client_values(self, name: str, option: str, options: Mapping[str, str]) -> dict[str, str]:
        """The values of a client's id or secret, by the settings that give them."""
        names = (f"sasl.oauthbearer.client.credentials.{name}", f"sasl.oauthbearer.{name}")
        values = {each: self._given[each] for each in names if each in self._given}
        if options.get(option):
            values["sasl.jaas.config"] = options[option]
        return values

    def _scope(self, options: Mapping[str, str]) -> str | None:
        values = {
            name: self._given[name] for name in ("sasl.oauthbearer.scope",) if name in self._given
        }
        if options.get("scope"):
            values["sasl.jaas.config"] = options["scope"]
        return self._one(values)

    def _authorities(self, options: Mapping[str, str]) -> Store | None:
        """The token endpoint's: librdkafka's https.ca.*, or ssl.truststore.* of the JAAS line."""
        name = f"{self._prefix}sasl.jaas.config"
        of_line = None
        if options.get("ssl.truststore.location") and options.get("ssl.truststore.certificates"):
            raise self.error(
                "sasl.jaas.config",
                "has ssl.truststore.location and ssl.truststore.certificates, which are two "
                "sources: give one",
            )
        if options.get("ssl.truststore.location"):
            of_line = Store(
                name,
                location=options["ssl.truststore.location"],
                password=options.get("ssl.truststore.password"),
            )
        elif options.get("ssl.truststore.certificates"):
            of_line = Store(name, text=_as_pem(options["ssl.truststore.certificates"]))
        return self._single(self.store("https.ca.location", "https.ca.pem"), of_line)

    def _unsecured(self, options: Mapping[str, str]) -> UnsecuredToken | None:
        if any(name.startswith(UNSECURED) for name in options):
            return self._unsecured_of_module(options)
        if not self.flag("enable.sasl.oauthbearer.unsecure.jwt", False):
            return None
        given = dict(
            part.partition("=")[::2]
            for part in self._given.get("sasl.oauthbearer.config", "").split()
        )
        principal = given.get("principal")
        if not principal:
            raise self.error("sasl.oauthbearer.config", "has to hold principal=NAME")
        claims: list[tuple[str, str | tuple[str, ...]]] = [
            (given.get("principalClaimName", "sub"), principal)
        ]
        if given.get("scope"):
            scopes = tuple(given["scope"].split(","))
            claims.append((given.get("scopeClaimName", "scope"), scopes))
        return UnsecuredToken(tuple(claims), self._seconds(given.get("lifeSeconds")))

    def _unsecured_of_module(self, options: Mapping[str, str]) -> UnsecuredToken:
        claims: list[tuple[str, str | tuple[str, ...]]] = []
        for name, value in options.items():
            for kind in ("StringClaim_", "NumberClaim_"):
                if name.startswith(UNSECURED + kind):
                    claims.append((name.removeprefix(UNSECURED + kind), value))
            if name.startswith(f"{UNSECURED}ListClaim_") and value:
                items = tuple(value[1:].split(value[0]))
                claims.append((name.removeprefix(f"{UNSECURED}ListClaim_"), items))
        if not claims:
            raise self.error(
                "sasl.jaas.config", 'has to name its user: unsecuredLoginStringClaim_sub="NAME"'
            )
        life = options.get(f"{UNSECURED}LifetimeSeconds")
        return UnsecuredToken(tuple(claims), self._seconds(life))

    def _seconds(self, text: str | None) -> int:
        if text is None:
            return 3_600
        if re.fullmatch(r"[0-9]{1,9}", text) is None:
            raise self.error("sasl.mechanism", "OAUTHBEARER: the life of a token is whole seconds")
        return int(text)

    def _extensions(self, options: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
        text = self.text("sasl.oauthbearer.extensions")
        found = {
            name.removeprefix("extension_"): value
            for name, value in options.items()
            if name.startswith("extension_")
        }
        for part in text.split(",") if text else ():
            name, _, value = part.strip().partition("=")
            if found.setdefault(name, value) != value:
                raise self.error(
                    "sasl.oauthbearer.extensions", "gives an extension a second value: give one"
                )
        for name, value in found.items():
            if not EXTENSION_NAME.fullmatch(name) or not EXTENSION_VALUE.fullmatch(value):
                raise self.error(
                    "sasl.oauthbearer.extensions" if text else "sasl.jaas.config",
                    "has an extension that Kafka does not take: NAME=VALUE, a name of "
                    "letters other than auth, and a value of printable ASCII",
                )
        return tuple(sorted(found.items()))


def _as_pem(text: str) -> str:
    """Put the line ends back that a one-line setting has lost."""

    def block(found: re.Match[str]) -> str:
        body = "".join(found[2].split())
        lines = [body[start : start + 64] for start in range(0, len(body), 64)]
        return "\n".join([f"-----BEGIN {found[1]}-----", *lines, f"-----END {found[1]}-----\n"])

    return PEM_BLOCK.sub(block, text.replace("\\n", "\n"))


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
