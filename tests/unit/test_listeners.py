"""Kafka's settings of listeners: their meaning, and the sentence for each contradiction."""

import pytest

from txn.config import BrokerSettings
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
