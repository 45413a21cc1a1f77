"""The tokens of a client that authenticates with OAUTHBEARER: from which one source they come.

A token comes from one place. The client's secret goes only to an endpoint with TLS, or on loopback.

Sources: KIP-342 (extensions), KIP-768 (OIDC); the login module of Apache Kafka 4.2.
"""

import re
from collections.abc import Callable, Mapping
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from txn.security.client import (
    ClientCredentials,
    StaticToken,
    Store,
    TokenCall,
    TokenFile,
    TokenSource,
    UnsecuredToken,
)
from txn.security.client_names import OAUTH_HANDLER, OAUTH_OPTIONS, RETRIEVERS, UNSECURED
from txn.security.given_settings import GivenSettings, as_pem

EXTENSION_NAME: Final = re.compile(r"(?!auth\Z)[A-Za-z]+")
EXTENSION_VALUE: Final = re.compile(r"[\x20-\x7e\t\r\n]+")


class TokenReader:
    """Reads the source of tokens from the settings and the options of the JAAS line."""

    def __init__(self, given: GivenSettings, options: Mapping[str, str]) -> None:
        self._given = given
        self._options = options

    def token(self, call: Callable[[], str] | None) -> TokenSource:
        """The one source of tokens; `call` returns a token. Raises ConfigError."""
        self._require_flow()
        sources: dict[str, TokenSource] = {}
        if call is not None:
            sources["a function that returns the token"] = TokenCall(call)
        static = self._given.text("sasl.oauthbearer.token")
        if static is not None:
            sources[f"{self._given.prefix}sasl.oauthbearer.token"] = StaticToken(static)
        endpoint = self._given.text("sasl.oauthbearer.token.endpoint.url")
        if endpoint is not None:
            name = f"{self._given.prefix}sasl.oauthbearer.token.endpoint.url"
            sources[name] = self._endpoint(endpoint)
        unsecured = self._unsecured()
        if unsecured is not None and not sources:
            sources["an unsecured token"] = unsecured
        named = list(sources)
        if endpoint is None:  # then no request is made with the client's secret
            secrets = self._client_values("client.secret", "clientSecret")
            named += [self._given.prefix + each for each in secrets]
        if sources and len(named) > 1:
            first, second = named[:2]
            raise self._given.error(
                "sasl.mechanism",
                f"OAUTHBEARER gets its token from one place, not from {first} "
                f"and {second}: give one",
            )
        if not sources:
            raise self._given.error(
                "sasl.mechanism",
                "OAUTHBEARER needs a token: set sasl.oauthbearer.token.endpoint.url with the "
                "client's id and secret (OIDC), the same to file:/PATH for a token in a file, or "
                "sasl.oauthbearer.token; in a program, give a function",
            )
        return next(iter(sources.values()))

    def _require_flow(self) -> None:
        """Refuse other ways to a token than client credentials."""
        unknown = [
            name
            for name in self._options
            if name not in OAUTH_OPTIONS and not name.startswith((UNSECURED, "extension_"))
        ]
        if unknown:
            raise self._given.error(
                "sasl.jaas.config",
                "has an option that OAuthBearerLoginModule does not take: it takes "
                f"{', '.join(sorted(OAUTH_OPTIONS))} and extension_NAME",
            )
        self._given.choice("sasl.oauthbearer.method", ("default", "oidc"))
        self._given.choice("sasl.oauthbearer.grant.type", ("client_credentials",))
        for name, known in (
            ("sasl.login.callback.handler.class", {OAUTH_HANDLER}),
            ("sasl.oauthbearer.jwt.retriever.class", RETRIEVERS),
        ):
            text = self._given.text(name)
            if text is not None and text.rpartition(".")[2] not in known:
                raise self._given.error(
                    name,
                    "names a Java class that is not used here. Set "
                    "sasl.oauthbearer.token.endpoint.url with the client's id and secret, or give "
                    "a function that returns the token",
                )

    def _endpoint(self, endpoint: str) -> TokenSource:
        name = "sasl.oauthbearer.token.endpoint.url"
        try:
            parts = urlsplit(endpoint.strip())
            host, port = parts.hostname or "", parts.port
        except ValueError:
            raise self._given.error(name, "is no URL: it takes https://HOST/PATH") from None
        if parts.scheme == "file" and parts.path and host in ("", "localhost"):
            return TokenFile(parts.path)
        if parts.scheme not in ("https", "http") or not host or port == 0:
            raise self._given.error(name, "is no URL of an endpoint: it takes https://HOST/PATH")
        if parts.username is not None or parts.password is not None:
            raise self._given.error(
                name,
                "may hold no user: give the client's id and secret by "
                "sasl.oauthbearer.client.credentials.client.id and .client.secret",
            )
        if parts.scheme == "http" and not _is_loopback(host):
            raise self._given.error(
                name, "is not encrypted, and the client's secret goes there: it takes https://"
            )
        return ClientCredentials(
            endpoint.strip(),
            self._client("client.id", "clientId"),
            self._client("client.secret", "clientSecret"),
            self._scope(),
            self._authorities(),
            self._given.flag("sasl.oauthbearer.header.urlencode", False),
        )

    def _client(self, name: str, option: str) -> str:
        value = self._given.one(self._client_values(name, option))
        if value is None:
            raise self._given.error(
                f"sasl.oauthbearer.client.credentials.{name}",
                "is missing: the token endpoint gives a token for a client's id and secret",
            )
        return value

    def _client_values(self, name: str, option: str) -> dict[str, str]:
        """The values of a client's id or secret, by the settings that give them."""
        names = (f"sasl.oauthbearer.client.credentials.{name}", f"sasl.oauthbearer.{name}")
        values = {each: self._given.values[each] for each in names if each in self._given.values}
        if self._options.get(option):
            values["sasl.jaas.config"] = self._options[option]
        return values

    def _scope(self) -> str | None:
        values = {
            name: self._given.values[name]
            for name in ("sasl.oauthbearer.scope",)
            if name in self._given.values
        }
        if self._options.get("scope"):
            values["sasl.jaas.config"] = self._options["scope"]
        return self._given.one(values)

    def _authorities(self) -> Store | None:
        """The token endpoint's: librdkafka's https.ca.*, or ssl.truststore.* of the JAAS line."""
        name = f"{self._given.prefix}sasl.jaas.config"
        of_line = None
        if self._options.get("ssl.truststore.location") and self._options.get(
            "ssl.truststore.certificates"
        ):
            raise self._given.error(
                "sasl.jaas.config",
                "has ssl.truststore.location and ssl.truststore.certificates, which are two "
                "sources: give one",
            )
        if self._options.get("ssl.truststore.location"):
            of_line = Store(
                name,
                location=self._options["ssl.truststore.location"],
                password=self._options.get("ssl.truststore.password"),
            )
        elif self._options.get("ssl.truststore.certificates"):
            of_line = Store(name, text=as_pem(self._options["ssl.truststore.certificates"]))
        return self._given.single(self._given.store("https.ca.location", "https.ca.pem"), of_line)

    def _unsecured(self) -> UnsecuredToken | None:
        if any(name.startswith(UNSECURED) for name in self._options):
            return self._unsecured_of_module()
        if not self._given.flag("enable.sasl.oauthbearer.unsecure.jwt", False):
            return None
        given = dict(
            part.partition("=")[::2]
            for part in self._given.values.get("sasl.oauthbearer.config", "").split()
        )
        principal = given.get("principal")
        if not principal:
            raise self._given.error("sasl.oauthbearer.config", "has to hold principal=NAME")
        claims: list[tuple[str, str | tuple[str, ...]]] = [
            (given.get("principalClaimName", "sub"), principal)
        ]
        if given.get("scope"):
            scopes = tuple(given["scope"].split(","))
            claims.append((given.get("scopeClaimName", "scope"), scopes))
        return UnsecuredToken(tuple(claims), self._seconds(given.get("lifeSeconds")))

    def _unsecured_of_module(self) -> UnsecuredToken:
        claims: list[tuple[str, str | tuple[str, ...]]] = []
        for name, value in self._options.items():
            for kind in ("StringClaim_", "NumberClaim_"):
                if name.startswith(UNSECURED + kind):
                    claims.append((name.removeprefix(UNSECURED + kind), value))
            if name.startswith(f"{UNSECURED}ListClaim_") and value:
                items = tuple(value[1:].split(value[0]))
                claims.append((name.removeprefix(f"{UNSECURED}ListClaim_"), items))
        if not claims:
            raise self._given.error(
                "sasl.jaas.config", 'has to name its user: unsecuredLoginStringClaim_sub="NAME"'
            )
        life = self._options.get(f"{UNSECURED}LifetimeSeconds")
        return UnsecuredToken(tuple(claims), self._seconds(life))

    def _seconds(self, text: str | None) -> int:
        if text is None:
            return 3_600
        if re.fullmatch(r"[0-9]{1,9}", text) is None:
            raise self._given.error(
                "sasl.mechanism", "OAUTHBEARER: the life of a token is whole seconds"
            )
        return int(text)

    def extensions(self) -> tuple[tuple[str, str], ...]:
        """The SASL extensions, by name. Raises ConfigError."""
        text = self._given.text("sasl.oauthbearer.extensions")
        found = {
            name.removeprefix("extension_"): value
            for name, value in self._options.items()
            if name.startswith("extension_")
        }
        for part in text.split(",") if text else ():
            name, _, value = part.strip().partition("=")
            if found.setdefault(name, value) != value:
                raise self._given.error(
                    "sasl.oauthbearer.extensions", "gives an extension a second value: give one"
                )
        for name, value in found.items():
            if not EXTENSION_NAME.fullmatch(name) or not EXTENSION_VALUE.fullmatch(value):
                raise self._given.error(
                    "sasl.oauthbearer.extensions" if text else "sasl.jaas.config",
                    "has an extension that Kafka does not take: NAME=VALUE, a name of "
                    "letters other than auth, and a value of printable ASCII",
                )
        return tuple(sorted(found.items()))


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
