"""Kafka's settings of listeners: their meaning, and the sentence for each contradiction."""

import re

import pytest

from txn.config import STANDARD_AUTHORIZER, BrokerSettings
from txn.errors import ConfigError
from txn.security.listeners import ListenerSpec, read_listeners


def read(*, host: str | None = None, port: int | None = None, **given: str) -> list[ListenerSpec]:
    settings = {name.replace("_", "."): value for name, value in given.items()}
    return read_listeners(BrokerSettings(settings), host, port)


def test_without_settings_a_plain_listener_has_the_host_and_the_port() -> None:
    assert read() == [ListenerSpec("PLAINTEXT", "127.0.0.1", 0, "PLAINTEXT", None, False)]
    assert read(host="::1", port=9092)[0][1:3] == ("::1", 9092)


def test_listeners_keep_their_order_names_and_addresses() -> None:
    specs = read(
        listeners="CLIENTS://:9092, internal://[::1]:9093,SSL://localhost:0",
        listener_security_protocol_map="CLIENTS:SSL,internal:PLAINTEXT",
        advertised_listeners="SSL://a.example:1,CLIENTS://b.example:2,INTERNAL://[::1]:9093",
        inter_broker_listener_name="internal",
    )
    assert specs == [
        ListenerSpec("CLIENTS", "0.0.0.0", 9092, "SSL", ("b.example", 2), False),
        ListenerSpec("INTERNAL", "::1", 9093, "PLAINTEXT", ("::1", 9093), True),
        ListenerSpec("SSL", "localhost", 0, "SSL", ("a.example", 1), False),
    ]


def test_an_ipv4_and_an_ipv6_address_may_share_a_port() -> None:
    assert len(read(listeners="PLAINTEXT://127.0.0.1:9092,SSL://[::1]:9092")) == 2


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"listeners": "127.0.0.1:9092"}, "it takes NAME://HOST:PORT"),
        ({"listeners": "PLAINTEXT://a:65536"}, "with a port up to 65535"),
        ({"listeners": " , "}, "listeners is empty"),
        ({"listeners": "SSL://a:1,ssl://b:2"}, "names SSL twice"),
        ({"listeners": "SSL://a:1,PLAINTEXT://b:1"}, "has port 1 twice"),
        ({"listeners": "CLIENTS://a:1"}, "no protocol for listener CLIENTS: add CLIENTS:SSL"),
        ({"listener.security.protocol.map": "A:TLS"}, "it takes NAME:PROTOCOL"),
        ({"listener.security.protocol.map": "A:SSL,a:PLAINTEXT"}, "gives A two protocols"),
        ({"advertised.listeners": "SSL://a:1"}, "names SSL, and listeners are PLAINTEXT"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:1"}, "gives PLAINTEXT no host"),
        ({"advertised.listeners": "PLAINTEXT://a:0"}, "gives PLAINTEXT port 0"),
        (
            {"listeners": "SSL://a:1,PLAINTEXT://a:2", "advertised.listeners": "SSL://a:1"},
            "no address for listener PLAINTEXT",
        ),
        ({"inter.broker.listener.name": "SSL"}, "is SSL, and listeners are PLAINTEXT"),
    ],
)
def test_a_contradiction_is_told(given: dict[str, str], told: str) -> None:
    with pytest.raises(ConfigError, match=r"^broker property [a-z.]+ ") as error:
        read_listeners(BrokerSettings(given), None, None)
    assert told in str(error.value)


def test_listeners_stand_beside_no_host_and_no_port() -> None:
    for host, port in (("127.0.0.1", None), (None, 0)):
        with pytest.raises(ConfigError, match="give one of the two"):
            read(listeners="PLAINTEXT://127.0.0.1:0", host=host, port=port)


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("listener.name.CLIENTS.ssl.client.auth", "has capitals: write listener.name.clients."),
        ("listener.name.open.ssl.client.auth", "listener OPEN speaks SASL_PLAINTEXT"),
        ("listener.name.clients.connections.max.reauth.ms", "listener CLIENTS speaks SSL"),
        ("listener.name.clients.plain.sasl.jaas.config", "listener CLIENTS speaks SSL"),
        ("listener.name.open.plain.sasl.enabled.mechanisms", "unknown broker property"),
        ("listener.name.open.plain.sasl.oauthbearer.expected.issuer", "unknown broker property"),
        ("listener.name.open.plain.oauthbearer.sasl.jaas.config", "unknown broker property"),
        ("listener.name.open.sasl.server.max.receive.size", "unknown broker property"),
    ],
)
def test_a_setting_that_would_leave_its_listener_as_it_is_is_refused(
    setting: str, told: str
) -> None:
    values = {"auth": "required", "ms": "60000", "size": "1024", "mechanisms": "PLAIN"}
    given = {
        "listeners": "CLIENTS://:9092,OPEN://:9093",
        "listener.security.protocol.map": "CLIENTS:SSL,OPEN:SASL_PLAINTEXT",
        setting: values.get(setting.rpartition(".")[2], "text"),
    }
    with pytest.raises(ConfigError, match=re.escape(told)) as error:
        read_listeners(BrokerSettings(given), None, None)
    assert setting in str(error.value)


def test_each_setting_of_a_listener_stands_before_those_that_have_use_for_it() -> None:
    given = {
        "listeners": "CLIENTS://:9092,OPEN://:9093",
        "listener.security.protocol.map": "CLIENTS:SASL_SSL,OPEN:SASL_PLAINTEXT,CLIENTS:sasl_ssl",
        "listener.name.clients.ssl.client.auth": "required",
        "listener.name.clients.connections.max.reauth.ms": "1000",
        "listener.name.open.scram-sha-256.connections.max.reauth.ms": "1000",
        "listener.name.open.scram-sha-256.sasl.jaas.config": "ScramLoginModule required;",
        "listener.name.open.oauthbearer.sasl.oauthbearer.expected.issuer": "me",
    }
    settings = BrokerSettings(given)
    protocols = [spec.security_protocol for spec in read_listeners(settings, None, None)]
    assert protocols == ["SASL_SSL", "SASL_PLAINTEXT"]
    assert settings.of_listener("OPEN", "connections.max.reauth.ms", "SCRAM-SHA-256") == 1000


def test_super_users_where_everybody_may_do_everything_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"super\.users stands without authorizer\.class\.name"):
        BrokerSettings({"super.users": "User:admin"})
    BrokerSettings({"super.users": ""})
    BrokerSettings({"super.users": "User:admin", "authorizer.class.name": STANDARD_AUTHORIZER})
