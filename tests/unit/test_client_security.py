"""The security settings of a client: both spellings, and refusals that show no secret."""

import pickle
from collections.abc import Mapping

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from txn.errors import ConfigError
from txn.security.client import (
    ClientCredentials,
    SecuritySettings,
    StaticToken,
    Store,
    TokenCall,
    TokenFile,
    UnsecuredToken,
)
from txn.security.client_names import READ, WITHOUT_EFFECT
from txn.security.client_reader import read_security

SECRET = "hunter2"
JAVA = "org.apache.kafka.common.security"
PLAIN = f'{JAVA}.plain.PlainLoginModule required username="ann" password="{SECRET}";'
SCRAM = f'{JAVA}.scram.ScramLoginModule required username="ann" password="{SECRET}";'
OAUTH = f"{JAVA}.oauthbearer.OAuthBearerLoginModule required"
OIDC = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.token.endpoint.url": "https://id.example/token",
}
PEM = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"


def test_nothing_given_is_a_plain_connection() -> None:
    assert read_security({"bootstrap.servers": "a:1"}) == SecuritySettings()


@pytest.mark.parametrize(
    ("java", "librdkafka"),
    [
        (
            {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "PLAIN",
                "sasl.jaas.config": PLAIN,
                "ssl.endpoint.identification.algorithm": "",
            },
            {
                "security.protocol": "sasl_ssl",
                "sasl.mechanisms": "PLAIN",
                "sasl.username": "ann",
                "sasl.password": SECRET,
                "ssl.endpoint.identification.algorithm": "none",
            },
        ),
        (
            {**OIDC, "sasl.jaas.config": f'{OAUTH} clientId="me" clientSecret="s" scope="k";'},
            {
                **OIDC,
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.client.id": "me",
                "sasl.oauthbearer.client.secret": "s",
                "sasl.oauthbearer.scope": "k",
            },
        ),
        (
            {
                **OIDC,
                "sasl.oauthbearer.client.credentials.client.id": "me",
                "sasl.oauthbearer.client.credentials.client.secret": "s",
                "sasl.jaas.config": f'{OAUTH} extension_logicalCluster="lkc-1";',
            },
            {
                **OIDC,
                "sasl.oauthbearer.client.id": "me",
                "sasl.oauthbearer.client.secret": "s",
                "sasl.oauthbearer.extensions": "logicalCluster=lkc-1",
            },
        ),
        (
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.jaas.config": f'{OAUTH} unsecuredLoginStringClaim_sub="ann";',
            },
            {
                "security.protocol": "sasl_plaintext",
                "sasl.mechanisms": "OAUTHBEARER",
                "enable.sasl.oauthbearer.unsecure.jwt": "true",
                "sasl.oauthbearer.config": "principal=ann",
            },
        ),
    ],
    ids=["PLAIN", "OIDC in the JAAS line", "OIDC by settings", "unsecured"],
)
def test_both_spellings_mean_the_same(
    java: Mapping[str, str], librdkafka: Mapping[str, str]
) -> None:
    assert read_security(java) == read_security(librdkafka)
    assert read_security(java) != SecuritySettings()


@pytest.mark.parametrize(
    ("given_settings", "found"),
    [
        ({"ssl.truststore.location": "/t"}, {"trusted": Store("ssl.truststore.location", "/t")}),
        ({"ssl.ca.location": "/t"}, {"trusted": Store("ssl.ca.location", "/t")}),
        ({"ssl.ca.pem": PEM}, {"trusted": Store("ssl.ca.pem", text=PEM)}),
        (
            {"ssl.truststore.certificates": PEM.replace("\n", " ")},
            {"trusted": Store("ssl.truststore.certificates", text=PEM)},
        ),
        (
            {"ssl.keystore.location": "/k", "ssl.keystore.password": SECRET},
            {"keystore": Store("ssl.keystore.location", "/k", password=SECRET)},
        ),
        (
            {"ssl.keystore.certificate.chain": PEM, "ssl.keystore.key": "K"},
            {
                "certificate": Store("ssl.keystore.certificate.chain", text=PEM),
                "key": Store("ssl.keystore.key", text="K"),
            },
        ),
        (
            {"ssl.certificate.location": "/c", "ssl.key.location": "/k", "ssl.key.password": "p"},
            {
                "certificate": Store("ssl.certificate.location", "/c"),
                "key": Store("ssl.key.location", "/k"),
                "key_password": "p",
            },
        ),
        ({"enable.ssl.certificate.verification": "false"}, {"check_certificate": False}),
        ({"ssl.endpoint.identification.algorithm": ""}, {"check_hostname": False}),
        ({"ssl.endpoint.identification.algorithm": "https"}, {}),
        ({"ssl.enabled.protocols": "TLSv1.2,TLSv1.3"}, {}),
        ({"ssl.truststore.type": "PEM"}, {}),
    ],
)
def test_certificates_go_by_all_their_names(
    given_settings: Mapping[str, str], found: Mapping[str, object]
) -> None:
    settings = read_security({"security.protocol": "SSL", **given_settings})
    expected = SecuritySettings("SSL", **found)  # type: ignore[arg-type]
    assert settings == expected


@pytest.mark.parametrize(
    ("given_settings", "source"),
    [
        ({"sasl.oauthbearer.token": SECRET}, StaticToken(SECRET)),
        (
            {"sasl.oauthbearer.token.endpoint.url": "file:///run/token"},
            TokenFile("/run/token"),
        ),
        (
            {
                "sasl.oauthbearer.token.endpoint.url": "http://127.0.0.1:8080/t",
                "sasl.oauthbearer.client.id": "me",
                "sasl.oauthbearer.client.secret": SECRET,
                "https.ca.location": "/ca",
                "sasl.oauthbearer.header.urlencode": "true",
            },
            ClientCredentials(
                "http://127.0.0.1:8080/t",
                "me",
                SECRET,
                trusted=Store("https.ca.location", "/ca"),
                encodes_header=True,
            ),
        ),
        (
            {
                "enable.sasl.oauthbearer.unsecure.jwt": "true",
                "sasl.oauthbearer.config": "principal=ann scope=a,b lifeSeconds=60",
            },
            UnsecuredToken((("sub", "ann"), ("scope", ("a", "b"))), 60),
        ),
    ],
)
def test_a_token_comes_from_the_place_that_is_named(
    given_settings: Mapping[str, str], source: object
) -> None:
    given_settings = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        **given_settings,
    }
    assert read_security(given_settings).token == source


def test_a_function_stands_for_a_token() -> None:
    settings = read_security(
        {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}, call=str
    )
    assert settings.token == TokenCall(str)


SASL = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}

REFUSALS = {
    "wrong protocol": ({"security.protocol": "SASL-SSL"}, "takes .*; did you mean SASL_SSL"),
    "no protocol": (
        {"sasl.username": "ann", "sasl.password": SECRET},
        "security.protocol is missing though sasl.password is given.* plain: set it to SASL_SSL",
    ),
    "no protocol for TLS": ({"ssl.ca.location": "/ca"}, "set it to SSL, or to PLAINTEXT"),
    "misspelled": (
        {"security.protocol": "SSL", "ssl.trustore.location": "/t"},
        "unknown security setting 'ssl.trustore.location'; did you mean ssl.truststore.location",
    ),
    "unknown": (
        {"security.protocol": "SSL", "ssl.frobnicate": "x"},
        "unknown security setting 'ssl.frobnicate'. Remove it",
    ),
    "no mechanism": (
        {"security.protocol": "SASL_SSL", "sasl.jaas.config": SCRAM},
        "sasl.mechanism is missing: set it to SCRAM-SHA-256, or to SCRAM-SHA-512",
    ),
    "GSSAPI": ({**SASL, "sasl.mechanism": "GSSAPI"}, "Kerberos .* is not supported. Connect to"),
    "Kerberos' settings": ({**SASL, "sasl.kerberos.service.name": "k"}, "Kerberos .* not supp"),
    "Kerberos' module": (
        {**SASL, "sasl.jaas.config": "com.sun.security.auth.module.Krb5LoginModule required;"},
        "Kerberos .* is not supported",
    ),
    "unknown mechanism": ({**SASL, "sasl.mechanism": "SCRAM-SHA-521"}, "did you mean SCRAM-SHA-51"),
    "MSK IAM": ({**SASL, "sasl.mechanism": "AWS_MSK_IAM"}, "aws-msk-iam-sasl-signer"),
    "no credentials": (SASL, "sasl.username is missing, and there is no sasl.jaas.config"),
    "no password": (
        {**SASL, "sasl.jaas.config": f"{JAVA}.plain.PlainLoginModule required username=ann;"},
        "sasl.password is missing, and sasl.jaas.config has no password",
    ),
    "two users": (
        {**SASL, "sasl.jaas.config": PLAIN, "sasl.username": "bob"},
        "sasl.username and sasl.jaas.config have different values",
    ),
    "two mechanisms": (
        {**SASL, "sasl.mechanisms": "SCRAM-SHA-256"},
        "sasl.mechanism and sasl.mechanisms have different values",
    ),
    "module of another mechanism": (
        {**SASL, "sasl.jaas.config": SCRAM},
        r"is for SCRAM-SHA-256 or SCRAM-SHA-512 \(ScramLoginModule\), and sasl.mechanism is PLAIN",
    ),
    "unknown module": ({**SASL, "sasl.jaas.config": "a.B required;"}, "not known here"),
    "broken JAAS": ({**SASL, "sasl.jaas.config": PLAIN[:-1]}, "cannot be read at character"),
    "two authorities": (
        {"security.protocol": "SSL", "ssl.ca.location": "/a", "ssl.truststore.location": "/b"},
        "ssl.truststore.location and ssl.ca.location are two sources",
    ),
    "certificate without key": (
        {"security.protocol": "SSL", "ssl.certificate.location": "/a"},
        "ssl.certificate.location is given without its other half",
    ),
    "revocation": ({"security.protocol": "SSL", "ssl.crl.location": "/r"}, "revoked broker"),
    "TLS 1.3 alone": ({"security.protocol": "SSL", "ssl.enabled.protocols": "TLSv1.3"}, "honoured"),
    "host check": (
        {"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": "ldaps"},
        "it takes https, or none",
    ),
    "no token": ({**SASL, "sasl.mechanism": "OAUTHBEARER"}, "needs a token"),
    "two tokens": (
        {
            **OIDC,
            "sasl.oauthbearer.token": SECRET,
            "sasl.oauthbearer.client.id": "me",
            "sasl.oauthbearer.client.secret": SECRET,
        },
        "gets its token from one place",
    ),
    "a token and a client": (
        {
            **SASL,
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token": SECRET,
            "sasl.oauthbearer.client.id": "me",
            "sasl.oauthbearer.client.secret": SECRET,
        },
        r"one place, not from sasl\.oauthbearer\.token and sasl\.oauthbearer\.client\.secret: give",
    ),
    "a token and a client in the JAAS line": (
        {
            **SASL,
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token": SECRET,
            "sasl.jaas.config": f'{OAUTH} clientId="me" clientSecret="{SECRET}";',
        },
        r"one place, not from sasl\.oauthbearer\.token and sasl\.jaas\.config: give one",
    ),
    "http": (
        {**OIDC, "sasl.oauthbearer.token.endpoint.url": "http://id.example/token"},
        "is not encrypted.* it takes https://",
    ),
    "user in the URL": (
        {**OIDC, "sasl.oauthbearer.token.endpoint.url": f"https://me:{SECRET}@id.example/"},
        "may hold no user",
    ),
    "no URL": ({**OIDC, "sasl.oauthbearer.token.endpoint.url": "https://[x"}, "is no URL"),
    "no client": (OIDC, "sasl.oauthbearer.client.credentials.client.id is missing"),
    "signed assertion": ({**OIDC, "sasl.oauthbearer.assertion.file": "/a"}, "jwt-bearer"),
    "handler": ({**OIDC, "sasl.login.callback.handler.class": "a.B"}, "names a Java class"),
    "option of the module": (
        {**OIDC, "sasl.jaas.config": f'{OAUTH} clientSecrt="{SECRET}";'},
        "has an option that OAuthBearerLoginModule does not take",
    ),
    "extension": (
        {**OIDC, "sasl.oauthbearer.extensions": "auth=x", "sasl.jaas.config": f"{OAUTH};"}
        | {"sasl.oauthbearer.client.id": "me", "sasl.oauthbearer.client.secret": SECRET},
        "has an extension that Kafka does not take",
    ),
    "an extension with two values": (
        {
            **OIDC,
            "sasl.jaas.config": f'{OAUTH} clientId="me" clientSecret="s" extension_x="{SECRET}";',
            "sasl.oauthbearer.extensions": "x=2",
        },
        r"sasl\.oauthbearer\.extensions gives an extension a second value",
    ),
    "two authorities in the JAAS line": (
        {
            **OIDC,
            "sasl.jaas.config": f'{OAUTH} clientId="me" clientSecret="s" '
            'ssl.truststore.location="/a" ssl.truststore.certificates="b";',
        },
        r"ssl\.truststore\.location and ssl\.truststore\.certificates, which are two sources",
    ),
    "two cases of one name": (
        {**SASL, "sasl.username": "ann", "sasl.password": SECRET, "SASL.Password": f"{SECRET}2"},
        r"sasl\.password and SASL\.Password have different values and mean the same: give one",
    ),
    "two cases of the host check": (
        {
            "security.protocol": "SSL",
            "ssl.endpoint.identification.algorithm": "https",
            "ssl.Endpoint.identification.algorithm": "",
        },
        "have different values and mean the same",
    ),
    "delegation token": (
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.jaas.config": SCRAM[:-1] + ' tokenauth="true";',
        },
        "delegation token",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_mistake_is_one_sentence_that_shows_no_secret(name: str) -> None:
    given_settings, told = REFUSALS[name]
    with pytest.raises(ConfigError, match=told) as raised:
        read_security(given_settings)
    assert SECRET not in str(raised.value)
    assert SECRET not in repr(vars(raised.value))
    assert "\n" not in str(raised.value)


def test_a_message_has_the_name_as_it_was_given() -> None:
    with pytest.raises(ConfigError, match=r"^kafka\.sasl\.username is missing") as raised:
        read_security(SASL, prefix="kafka.")
    assert raised.value.option == "kafka.sasl.username"


def test_what_is_given_twice_with_one_value_is_no_contradiction() -> None:
    settings = read_security(
        {
            **OIDC,
            "SECURITY.PROTOCOL": OIDC["security.protocol"],
            "sasl.jaas.config": f'{OAUTH} clientId="me" clientSecret="s" extension_x="1";',
            "sasl.oauthbearer.extensions": "x=1,y=2",
        }
    )
    assert settings.extensions == (("x", "1"), ("y", "2"))


def test_a_plain_protocol_that_was_asked_for_passes_over_what_it_does_not_need() -> None:
    given_settings = {"security.protocol": "PLAINTEXT", "ssl.ca.location": "/ca"}
    assert read_security(given_settings) == SecuritySettings()


def test_no_secret_is_in_a_repr_and_all_are_in_a_pickle() -> None:
    settings = read_security(
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": SCRAM,
            "ssl.keystore.location": "/k",
            "ssl.keystore.password": SECRET,
            "ssl.key.password": SECRET,
        }
    )
    assert repr(settings) == "SecuritySettings(SASL_SSL, SCRAM-SHA-512)"
    assert SECRET not in repr((settings.keystore, StaticToken(SECRET)))
    assert SECRET not in repr(ClientCredentials("https://h", "me", SECRET))
    assert pickle.loads(pickle.dumps(settings)) == settings
    assert hash(settings) == hash(pickle.loads(pickle.dumps(settings)))


@given(
    st.dictionaries(
        st.sampled_from(sorted(READ | WITHOUT_EFFECT)),
        st.sampled_from(
            [
                *("", "true", "PLAIN", "OAUTHBEARER", "SCRAM-SHA-256", "SASL_SSL", "SSL", "PEM"),
                *(PLAIN, SCRAM, f"{OAUTH};", "https://h/", "file:/x", "principal=x", "a=b"),
                *("https", "sEcReT", "sEcReT=sEcReT", '"sEcReT', "http://sEcReT@h:x/"),
            ]
        ),
        max_size=12,
    )
)
@example({"security.protocol": PLAIN})
def test_no_settings_end_in_a_traceback(settings: dict[str, str]) -> None:
    said = message_of(settings)
    assert SECRET not in said
    if all("sEcReT" not in settings.get(name, "") for name in MAY_BE_SHOWN):
        assert "sEcReT" not in said


MAY_BE_SHOWN = (
    *("enable.sasl.oauthbearer.unsecure.jwt", "enable.ssl.certificate.verification"),
    *("sasl.mechanism", "sasl.mechanisms", "sasl.oauthbearer.grant.type"),
    *("sasl.oauthbearer.header.urlencode", "sasl.oauthbearer.method", "security.protocol"),
    *("ssl.endpoint.identification.algorithm", "ssl.keystore.type", "ssl.truststore.type"),
)
"""Their wrong values are words that a message repeats."""


def message_of(settings: Mapping[str, str]) -> str:
    try:
        read_security(settings)
    except ConfigError as error:
        return str(error)
    return ""
