"""Java's spelling of security settings, given to `txn.Producer` and `txn.Consumer`."""

from collections.abc import Mapping
from pathlib import Path

import confluent_kafka
import pytest
import trustme
from confluent_kafka import KafkaException

import txn
from txn.access.librdkafka import in_librdkafkas_names
from txn.client.settings import refused
from txn.errors import ConfigError

SECRET = "hunter2"
JAVA = "org.apache.kafka.common.security"
SERVERS = {"bootstrap.servers": "127.0.0.1:9"}
SASL = {**SERVERS, "security.protocol": "SASL_PLAINTEXT"}
OIDC = {
    **SASL,
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.token.endpoint.url": "https://id.example/token",
}


@pytest.mark.parametrize(
    ("java", "librdkafka"),
    [
        (
            {
                **SASL,
                "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.jaas.config": f"{JAVA}.scram.ScramLoginModule required username=ann "
                f'password="{SECRET}";',
                "linger.ms": 5,
            },
            {
                **SASL,
                "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.username": "ann",
                "sasl.password": SECRET,
                "linger.ms": 5,
            },
        ),
        (
            {
                **OIDC,
                "sasl.oauthbearer.client.credentials.client.id": "me",
                "sasl.oauthbearer.client.credentials.client.secret": SECRET,
                "sasl.login.callback.handler.class": "a.OAuthBearerLoginCallbackHandler",
                "sasl.jaas.config": f"{JAVA}.oauthbearer.OAuthBearerLoginModule required "
                'extension_logicalCluster="lkc-1";',
            },
            {
                **OIDC,
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.client.id": "me",
                "sasl.oauthbearer.client.secret": SECRET,
                "sasl.oauthbearer.extensions": "logicalCluster=lkc-1",
            },
        ),
    ],
)
def test_javas_names_become_librdkafkas(
    java: Mapping[str, object], librdkafka: Mapping[str, object]
) -> None:
    assert in_librdkafkas_names(dict(java)) == librdkafka
    confluent_kafka.Producer(dict(librdkafka))


def test_certificates_go_along(tmp_path: Path) -> None:
    authority = trustme.CA()
    client = authority.issue_cert("client.test")
    ca, store = tmp_path / "ca.pem", tmp_path / "client.pem"
    authority.cert_pem.write_to_path(str(ca))
    client.private_key_and_cert_chain_pem.write_to_path(str(store))
    found = in_librdkafkas_names(
        {
            **SERVERS,
            "security.protocol": "SSL",
            "ssl.truststore.location": str(ca),
            "ssl.truststore.type": "PEM",
            "ssl.keystore.location": str(store),
            "ssl.keystore.type": "PEM",
            "ssl.endpoint.identification.algorithm": "",
        }
    )
    assert found == {
        **SERVERS,
        "security.protocol": "SSL",
        "ssl.ca.pem": authority.cert_pem.bytes().decode(),
        "ssl.certificate.location": str(store),
        "ssl.key.location": str(store),
        "ssl.endpoint.identification.algorithm": "none",
    }
    confluent_kafka.Producer(found)


def test_none_is_no_value_and_turns_no_check_off() -> None:
    java: dict[str, object] = {
        **SERVERS,
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.endpoint.identification.algorithm": None,
        "ssl.key.password": None,
    }
    assert in_librdkafkas_names(java) == {**SERVERS, "security.protocol": "SSL"}


def test_librdkafkas_names_are_passed_on_untouched() -> None:
    given = {**SASL, "sasl.mechanisms": "GSSAPI", "ssl.cipher.suites": "x", "sasl.password": SECRET}
    assert in_librdkafkas_names(dict(given)) == given


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (
            {"sasl.mechanism": "PLAIN", "sasl.username": "ann", "sasl.password": SECRET},
            r"though sasl\.mechanism is given, so the connection would be plain: set it to SASL_S",
        ),
        ({"ssl.ca.location": "/ca"}, r"though ssl\.ca\.location is given.* set it to SSL, or to"),
        ({"ssl.crl.location": "/crl"}, r"though ssl\.crl\.location is given"),
        ({"ssl.endpoint.identification.algorithm": "https"}, "security.protocol is missing"),
        ({"sasl.kerberos.keytab": "/k"}, r"though sasl\.kerberos\.keytab is given"),
        ({"sasl.password": SECRET, "security.protocol": None}, "security.protocol is missing"),
        ({"oauth_cb": str}, "though a token is given"),
        ({"ssl.truststore.location": "/ca"}, r"though ssl\.truststore\.location is given"),
    ],
)
def test_credentials_without_a_protocol_are_refused(given: Mapping[str, object], told: str) -> None:
    """Those in librdkafka's names went out in plain text, since PLAINTEXT is the default."""
    with pytest.raises(ConfigError, match=told) as raised:
        in_librdkafkas_names({**SERVERS, **given})
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize(
    "given",
    [
        {"security.protocol": "PLAINTEXT", "sasl.password": SECRET},
        {"sasl.password": None, "ssl.ca.location": ""},
        {"enable.ssl.certificate.verification": False},
        {"ssl.protocol": "TLS"},
        {"linger.ms": 5},
    ],
)
def test_a_protocol_is_not_asked_for_where_nothing_is_to_be_protected(
    given: Mapping[str, object],
) -> None:
    found = in_librdkafkas_names({**SERVERS, **given})
    assert found.get("security.protocol", "PLAINTEXT") == "PLAINTEXT"


def test_a_misspelled_name_is_librdkafkas_to_tell() -> None:
    given: dict[str, object] = {**SERVERS, "ssl.trustore.location": "/x"}
    assert in_librdkafkas_names(given) == given


@pytest.mark.parametrize("value", ["1,traceId=evil", "a\\b", "a "])
def test_an_extension_that_librdkafkas_list_would_change_goes_by_its_function(value: str) -> None:
    """A comma in the value of an extension made two extensions of it."""
    line = (
        f"{JAVA}.oauthbearer.OAuthBearerLoginModule required clientId=me "
        f'clientSecret="{SECRET}" extension_x="{value}";'.replace("\\", "\\\\")
    )
    found = in_librdkafkas_names({**OIDC, "sasl.jaas.config": line})
    assert "sasl.oauthbearer.extensions" not in found
    assert callable(found["oauth_cb"])


def test_a_token_of_a_file_comes_by_librdkafkas_function(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("a.b.c")
    url = {"sasl.oauthbearer.token.endpoint.url": f"file://{path}", "ssl.protocol": "TLS"}
    found = in_librdkafkas_names({**SASL, "sasl.mechanism": "OAUTHBEARER", **url})
    callback = found["oauth_cb"]
    assert callable(callback)
    assert callback("")[0] == "a.b.c"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({**SASL, "sasl.jaas.config": SECRET}, "sasl.jaas.config cannot be read at character"),
        ({**SASL, "ssl.truststore.location": "/x"}, "sasl.mechanism is missing"),
        (
            {**SERVERS, "security.protocol": "SSL", "ssl.truststore.location": "/nowhere"},
            "ssl.truststore.location '/nowhere' cannot be read",
        ),
        (
            {"sasl.password": SECRET, "config": SASL | {"sasl.password": "other"}},
            "sasl.password is given twice; give it once",
        ),
        (
            {
                "sasl.oauthbearer.assertion.private.key.passphrase": SECRET,
                "config": SASL | {"sasl.oauthbearer.assertion.private.key.passphrase": "other"},
            },
            "private.key.passphrase is given twice; give it once",
        ),
        (
            {
                "sasl.oauthbearer.assertion.private.key.pem": SECRET,
                "config": SASL | {"sasl.oauthbearer.assertion.private.key.pem": "other"},
            },
            "private.key.pem is given twice; give it once",
        ),
        ({**SASL, "ssl.trustore.location": "/x"}, "did you mean ssl.truststore.location"),
    ],
)
def test_a_mistake_shows_no_secret(given: Mapping[str, object], told: str) -> None:
    settings = dict(given)
    config = settings.pop("config", None)
    keywords = {name.replace(".", "_"): value for name, value in settings.items()}
    with pytest.raises(ConfigError, match=told) as raised:
        txn.Consumer(config, group_id="g", **keywords)  # type: ignore[arg-type]
    assert SECRET not in str(raised.value)
    assert raised.value.__cause__ is None


def test_a_refusal_of_librdkafkas_is_shown_without_the_secrets_in_it() -> None:
    said = KafkaException(confluent_kafka.KafkaError(-186, f'Invalid value "{SECRET}"'))
    error = refused("the producer", said, {"sasl.password": SECRET})
    assert str(error) == 'the configuration of the producer is refused: Invalid value "…"'


def test_a_configuration_of_another_type_is_not_shown() -> None:
    with pytest.raises(TypeError) as raised:
        txn.Producer([("sasl.password", SECRET)])  # type: ignore[arg-type]
    assert SECRET not in str(raised.value)
