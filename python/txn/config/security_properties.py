"""The broker's settings for listeners, TLS, SASL and access control.

Only certificates may change while the broker runs; every other setting here is fixed at the start.
"""

from typing import Final

from txn.config.property import (
    INT64_MIN,
    ConfigType,
    Property,
    described,
    flag,
    integer,
    list_of,
    long,
    one_of,
    secret,
    text_of,
)

SECURITY_PROTOCOLS: Final = (
    "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT"
)
"""The default of `listener.security.protocol.map`, as Kafka writes it."""

_STRENGTHS: Final = ("AES_256_GCM_SHA384", "AES_128_GCM_SHA256", "CHACHA20_POLY1305_SHA256")
CIPHER_SUITES: Final = (
    *(f"TLS_{strength}" for strength in _STRENGTHS),
    *(f"TLS_ECDHE_{key}_WITH_{strength}" for key in ("ECDSA", "RSA") for strength in _STRENGTHS),
)
"""Those of TLS 1.3 and then of TLS 1.2 that rustls has, by the names of IANA and Java."""

STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def _authorizer() -> Property:
    words = {"": "", STANDARD_AUTHORIZER: STANDARD_AUTHORIZER}
    return Property(
        ConfigType.STRING,
        lambda text: words[text.strip()],
        "",
        f"empty or {STANDARD_AUTHORIZER}: no other authorizer runs in this broker",
    )


def _principals() -> Property:
    """Principals, parted by semicolons: a name from a certificate has commas in it."""

    def parse(text: str) -> str:
        for user in text.split(";"):
            kind, _, name = user.strip().partition(":")
            if user.strip() and not (kind and name):
                raise ValueError(user)
        return text

    return Property(ConfigType.STRING, parse, "", "principals as User:NAME, parted by semicolons")


_STORE_TYPE: Final = one_of("PEM", "PKCS12", "JKS")

_STORES: Final = {
    "ssl.key.password": (secret(), "The password of an encrypted private key."),
    "ssl.keystore.certificate.chain": (
        secret(),
        "The certificate chain as PEM, instead of a file.",
    ),
    "ssl.keystore.key": (secret(), "The private key as PEM, instead of a file."),
    "ssl.keystore.location": (
        text_of("the path of a file of PEM or PKCS12"),
        "A file with the certificate chain and the private key.",
    ),
    "ssl.keystore.password": (secret(), "The password of a keystore of PKCS12."),
    "ssl.keystore.type": (_STORE_TYPE, "Without effect: the content of the file decides."),
    "ssl.truststore.certificates": (
        secret(),
        "The issuers of client certificates as PEM, instead of a file.",
    ),
    "ssl.truststore.location": (
        text_of("the path of a file of PEM or PKCS12"),
        "A file with the issuers of client certificates.",
    ),
    "ssl.truststore.password": (secret(), "The password of a truststore of PKCS12."),
    "ssl.truststore.type": (_STORE_TYPE, "Without effect: the content of the file decides."),
}
STORE_PROPERTIES: Final[dict[str, Property]] = described(_STORES, is_dynamic=True)
"""The certificates of listeners. AlterConfigs changes those of one listener, which it names."""

_FIXED: Final = {
    "advertised.listeners": (
        Property(ConfigType.LIST, str, None, "a list of NAME://HOST:PORT"),
        "The addresses that clients of each listener get, if not the listener's own.",
    ),
    "authorizer.class.name": (
        _authorizer(),
        "Kafka's StandardAuthorizer: access control lists decide. Empty: any client may do "
        "everything.",
    ),
    "connection.failed.authentication.delay.ms": (
        integer(100, 0),
        "How long a client that failed to authenticate waits for the answer.",
    ),
    "connections.max.reauth.ms": (
        long(0, INT64_MIN),
        "How long an authentication is valid; 0: as long as the connection.",
    ),
    "early.start.listeners": (
        Property(ConfigType.LIST, str, None, "a comma-separated list of listeners"),
        "Without effect: every listener starts once all access control lists are known.",
    ),
    "inter.broker.listener.name": (
        Property(ConfigType.STRING, str.strip, None, "the name of a listener"),
        "The listener that other brokers use.",
    ),
    "listener.security.protocol.map": (
        Property(ConfigType.STRING, str, SECURITY_PROTOCOLS, "a list of NAME:PROTOCOL"),
        "The security protocol of each listener.",
    ),
    "listeners": (
        Property(ConfigType.LIST, str, None, "a list of NAME://HOST:PORT"),
        "The sockets to listen on; without a host, every address.",
    ),
    "sasl.enabled.mechanisms": (
        list_of("", r"[A-Z0-9_-]+", "a comma-separated list of SASL mechanisms"),
        "The mechanisms of SASL listeners: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and "
        "OAUTHBEARER. Kafka's default, GSSAPI, is not spoken here.",
    ),
    "sasl.mechanism.inter.broker.protocol": (
        Property(ConfigType.STRING, str, "GSSAPI", "the name of a mechanism"),
        "Without effect: the broker connects to no other.",
    ),
    "sasl.oauthbearer.allow.unverified.audience": (
        flag(False),
        "Whether a token may be for any audience, whatever audience is expected.",
    ),
    "sasl.oauthbearer.allow.unverified.issuer": (
        flag(False),
        "Whether a token may be of any issuer whose key is known, whatever is expected.",
    ),
    "sasl.oauthbearer.clock.skew.seconds": (
        integer(30, 0),
        "How far the clock of a token's issuer may be off.",
    ),
    "sasl.oauthbearer.expected.audience": (
        Property(ConfigType.LIST, str, "", "a list of audiences"),
        "A token has to name one of these audiences; by default it must not name any.",
    ),
    "sasl.oauthbearer.expected.issuer": (
        Property(ConfigType.STRING, str, None, "the name of an issuer"),
        "The issuer of every token; by default any issuer whose key is known.",
    ),
    "sasl.oauthbearer.jwks.endpoint.refresh.ms": (
        long(3_600_000, 1),
        "How long the issuer's keys are used before they are fetched again.",
    ),
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": (
        long(10_000, 1),
        "The shortest time between two fetches for tokens with an unknown key.",
    ),
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": (
        long(100, 0),
        "Without effect: a failed fetch is repeated when a client needs it.",
    ),
    "sasl.oauthbearer.jwks.endpoint.url": (
        Property(ConfigType.STRING, str, None, "a URL of https or file"),
        "The issuer's keys, a JSON Web Key Set.",
    ),
    "sasl.oauthbearer.scope.claim.name": (
        Property(ConfigType.STRING, str, "scope", "the name of a claim"),
        "The claim of a token that has its scopes.",
    ),
    "sasl.oauthbearer.sub.claim.name": (
        Property(ConfigType.STRING, str, "sub", "the name of a claim"),
        "The claim of a token that names the principal.",
    ),
    "sasl.server.max.receive.size": (
        integer(524_288, 1),
        "The largest request of a client that has not authenticated.",
    ),
    "ssl.allow.dn.changes": (
        flag(False),
        "Whether an alteration may give a listener a certificate of another subject.",
    ),
    "ssl.allow.san.changes": (
        flag(False),
        "Whether an alteration may give a listener a certificate without names of before.",
    ),
    "ssl.cipher.suites": (
        list_of("", "|".join(CIPHER_SUITES), f"a list of {', '.join(CIPHER_SUITES)}"),
        "The cipher suites of TLS listeners; empty: all.",
    ),
    "ssl.client.auth": (
        one_of("none", "requested", "required"),
        "Whether clients are asked for a certificate, or refused without one.",
    ),
    "ssl.enabled.protocols": (
        list_of("TLSv1.2,TLSv1.3", r"TLSv1\.[23]", "a list of TLSv1.2, TLSv1.3"),
        "The versions of TLS.",
    ),
    "ssl.principal.mapping.rules": (
        Property(ConfigType.STRING, str, "DEFAULT", "a list of rules"),
        "Rules that make a principal of a client certificate's subject.",
    ),
}
SECURITY_PROPERTIES: Final = described(_FIXED) | described(
    {
        "allow.everyone.if.no.acl.found": (
            flag(False),
            "Everything is allowed on a resource that no access control list names.",
        ),
        "super.users": (_principals(), "Principals that may do everything."),
    },
    is_internal=True,
)
"""Settings that do not change while the broker runs."""
