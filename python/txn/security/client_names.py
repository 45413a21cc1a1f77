"""The names of a client's security settings, in Java's spelling and in librdkafka's.

Sources: SslConfigs and SaslConfigs, Apache Kafka 4.2; librdkafka 2.12, CONFIGURATION.md.
"""

from collections.abc import Mapping
from typing import Final

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")

FAMILIES: Final = ("sasl.", "ssl.", "security.", "https.ca.", "enable.ssl.", "enable.sasl.")
"""A name that begins so is about security."""

READ: Final = frozenset(
    """
    enable.sasl.oauthbearer.unsecure.jwt enable.ssl.certificate.verification https.ca.location
    https.ca.pem sasl.jaas.config sasl.login.callback.handler.class sasl.mechanism sasl.mechanisms
    sasl.oauthbearer.client.credentials.client.id sasl.oauthbearer.client.credentials.client.secret
    sasl.oauthbearer.client.id sasl.oauthbearer.client.secret sasl.oauthbearer.config
    sasl.oauthbearer.extensions sasl.oauthbearer.grant.type sasl.oauthbearer.header.urlencode
    sasl.oauthbearer.jwt.retriever.class sasl.oauthbearer.method sasl.oauthbearer.scope
    sasl.oauthbearer.token sasl.oauthbearer.token.endpoint.url sasl.password sasl.username
    security.protocol ssl.ca.location ssl.ca.pem ssl.certificate.location ssl.certificate.pem
    ssl.enabled.protocols ssl.endpoint.identification.algorithm ssl.key.location ssl.key.password
    ssl.key.pem ssl.keystore.certificate.chain ssl.keystore.key ssl.keystore.location
    ssl.keystore.password ssl.keystore.type ssl.truststore.certificates ssl.truststore.location
    ssl.truststore.password ssl.truststore.type
    """.split()
)

WITHOUT_EFFECT: Final = frozenset(
    """
    sasl.login.connect.timeout.ms sasl.login.read.timeout.ms sasl.login.refresh.buffer.seconds
    sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor
    sasl.login.refresh.window.jitter sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms
    sasl.oauthbearer.clock.skew.seconds sasl.oauthbearer.expected.audience
    sasl.oauthbearer.expected.issuer sasl.oauthbearer.jwks.endpoint.refresh.ms
    sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms
    sasl.oauthbearer.jwks.endpoint.retry.backoff.ms sasl.oauthbearer.jwks.endpoint.url
    sasl.oauthbearer.jwt.validator.class sasl.oauthbearer.scope.claim.name
    sasl.oauthbearer.sub.claim.name security.providers ssl.keymanager.algorithm ssl.protocol
    ssl.provider ssl.secure.random.implementation ssl.trustmanager.algorithm
    """.split()
)
"""They tune Java or librdkafka, or the broker's check of a token."""

GSSAPI_REFUSED: Final = (
    "Kerberos (GSSAPI) is not supported. Connect to a listener with SCRAM-SHA-512, PLAIN, "
    "OAUTHBEARER or client certificates"
)

AWS: Final = (
    "Amazon's IAM login module is Java. Set sasl.mechanism=OAUTHBEARER, and give a function that "
    "returns a token of aws-msk-iam-sasl-signer-python (for Spark: txn.spark.register(spark, "
    "tokens=...))"
)

REFUSED: Final[Mapping[str, str]] = {
    "sasl.client.callback.handler.class": "a callback handler is Java. Remove it",
    "sasl.kerberos.": GSSAPI_REFUSED,
    "sasl.login.class": "a login class is Java. Remove it",
    "sasl.oauthbearer.assertion.": (
        "tokens for a signed assertion (jwt-bearer) are not supported. Use client credentials, or "
        "give a function that returns the token"
    ),
    "sasl.oauthbearer.metadata.authentication.type": (
        "tokens of a cloud's metadata service are not supported. Give a function that returns the "
        "token"
    ),
    "ssl.ca.certificate.stores": "it is for Windows. Set ssl.ca.location",
    "ssl.cipher.suites": "cipher suites are those of rustls, all of them strong. Remove it",
    "ssl.crl.location": (
        "revocation lists are not checked, so a revoked broker would be trusted. Remove it only "
        "if that is acceptable"
    ),
    "ssl.curves.list": "key exchanges are those of rustls, all of them strong. Remove it",
    "ssl.engine.": "an SSL engine is a library that is not used here. Remove it",
    "ssl.providers": "OpenSSL's providers are not used here. Remove it",
    "ssl.sigalgs.list": "signature algorithms are those of rustls, all strong. Remove it",
}
"""Settings that cannot be honoured, by name, or by its beginning if that ends with a dot."""

MODULES: Final[Mapping[str, tuple[str, ...]]] = {
    "PlainLoginModule": ("PLAIN",),
    "ScramLoginModule": ("SCRAM-SHA-256", "SCRAM-SHA-512"),
    "OAuthBearerLoginModule": ("OAUTHBEARER",),
}

UNSECURED: Final = "unsecuredLogin"
OAUTH_OPTIONS: Final = frozenset(
    """clientId clientSecret scope ssl.truststore.certificates ssl.truststore.location
    ssl.truststore.password ssl.truststore.type""".split()
)

SECRETS: Final = frozenset(
    """
    sasl.jaas.config sasl.oauthbearer.assertion.private.key.passphrase
    sasl.oauthbearer.assertion.private.key.pem sasl.oauthbearer.client.credentials.client.secret
    sasl.oauthbearer.client.secret sasl.oauthbearer.config sasl.oauthbearer.token sasl.password
    ssl.key.password ssl.key.pem ssl.keystore.key ssl.keystore.password ssl.truststore.password
    """.split()
)
"""Their values are never shown."""

OAUTH_HANDLER: Final = "OAuthBearerLoginCallbackHandler"
RETRIEVERS: Final = frozenset(
    {"ClientCredentialsJwtRetriever", "DefaultJwtRetriever", "FileJwtRetriever"}
)
STORE_TYPES: Final = ("PEM", "PKCS12", "JKS")
