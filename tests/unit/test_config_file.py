"""A file of Kafka's broker settings: taken as it is, or refused with a sentence."""

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from txn.config import BROKER_PROPERTIES, STANDARD_AUTHORIZER, BrokerSettings
from txn.errors import ConfigError
from txn.security.listeners import read_listeners
from txn.server.settings.config_file import ConfigFile, is_secret, read_config_file

STOCK = """\
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,\\
    SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
#log.flush.interval.messages=10000
#log.flush.interval.ms=1000
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""
"""The settings of config/server.properties of Apache Kafka 4.2."""

Reader = Callable[[str], ConfigFile]


@pytest.fixture
def read(tmp_path: Path) -> Reader:
    def read(text: str) -> ConfigFile:
        path = tmp_path / "server.properties"
        path.write_bytes(text.encode("latin-1"))
        return read_config_file(path)

    return read


def test_kafkas_own_file_is_taken_as_it_is(read: Reader) -> None:
    file = read(STOCK)
    assert file.data == Path("/tmp/kraft-combined-logs")
    assert file.not_used == (
        "num.io.threads",
        "share.coordinator.state.topic.min.isr",
        "share.coordinator.state.topic.replication.factor",
        "socket.receive.buffer.bytes",
        "socket.send.buffer.bytes",
    )
    settings = BrokerSettings(file.properties)
    (listener,) = read_listeners(settings, None, None)
    assert (listener.name, listener.port, listener.is_inter_broker) == ("PLAINTEXT", 9092, True)
    assert listener.advertised == ("localhost", 9092)
    assert settings["num.network.threads"] == 3
    assert not file.repeated
    assert not file.has_secrets


def test_a_file_is_read_as_java_reads_it(read: Reader) -> None:
    file = read(
        "  node.id : 7\n! a comment\nnum.partitions 4  \nsuper.users = User:\\u00e9;\\\n"
        "   User:\xe9\\:b\t\nauthorizer.class.name\\\n=" + STANDARD_AUTHORIZER + "\r\n"
        "num.partitions=5\n"
    )
    assert file.properties == {
        "node.id": "7",
        "num.partitions": "5",
        "super.users": "User:é;User:é:b",
        "authorizer.class.name": STANDARD_AUTHORIZER,
    }
    assert file.repeated == ("num.partitions",)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        # A class that is not there would have kept somebody out.
        ("authorizer.class.name=com.example.Mine", "authorizer.class.name cannot be"),
        ("principal.builder.class=com.example.Mine", "principal.builder.class names a class"),
        ("create.topic.policy.class.name=a.B", "create.topic.policy.class.name names a class"),
        ("client.quota.callback.class=a.B", "client.quota.callback.class names a class"),
        ("ssl.engine.factory.class=a.B", "ssl.engine.factory.class names a class"),
        (
            "listener.name.x.plain.sasl.server.callback.handler.class=a.B",
            "sasl.server.callback.handler.class names a class",
        ),
        (
            "listener.name.x.plain.sasl.server.callback.handler.class=org.apache.kafka.common."
            "security.oauthbearer.OAuthBearerValidatorCallbackHandler",
            "names a class",
        ),
        ("listener.name.x.principal.builder.class=a.B", "names a class"),
        # So would a restriction that is not honoured.
        ("ssl.keystore.type=BKS", "ssl.keystore.type cannot be 'BKS': it takes PEM, PKCS12 or JKS"),
        ("cordoned.log.dirs=/data", "cordoned.log.dirs keeps new partitions out"),
        ("ssl.cipher.suites=TLS_RSA_WITH_NULL_SHA", "ssl.cipher.suites cannot be"),
        ("delete.topic.enable=false", "delete.topic.enable cannot be false"),
        ("password.encoder.secret=s3cret", "password.encoder.secret has nothing to encrypt"),
        ("delegation.token.secret.key=s3cret", "delegation tokens, which are not there"),
        ("security.providers=a.B", "security.providers names a class"),
        ("sasl.jaas.config=X required;", "listener.name.NAME.MECHANISM.sasl.jaas.config"),
        ("listener.name.x.sasl.jaas.config=X required;", "is written listener.name.NAME."),
        # And a setting that nobody knows.
        ("ssl.client.aut=required", "ssl.client.aut is unknown; did you mean ssl.client.auth?"),
        ("super.user=User:a", "super.user is unknown; did you mean super.users?"),
        ("listener.name.x.ssl.client.aut=required", "is unknown; did you mean ssl.client.auth?"),
        ("listener.name.x.num.partitions=1", "is not for one listener alone"),
        ("listener.name.x.gssapi.sasl.jaas.config=K required;", "is unknown"),
        ("confluent.license=x", "confluent.license is unknown"),
        # The node is a cluster of its own.
        ("process.roles=broker", "process.roles is broker alone"),
        ("process.roles=controller", "process.roles is controller alone"),
        ("process.roles=broker,controller", "controller.listener.names is missing"),
        ("process.roles=both", "process.roles takes broker,controller"),
        ("controller.quorum.voters=1@a:1,2@b:1", "names several nodes"),
        ("controller.quorum.bootstrap.servers=a:1,b:1", "names several nodes"),
        ("controller.quorum.voters=2@a:1\nnode.id=1", "names node 2, and node.id is another"),
        ("broker.id=2\nnode.id=1", "broker.id is 2, and node.id is 1"),
        ("default.replication.factor=3", "default.replication.factor cannot be '3'"),
        ("log.dirs=/a,/b", "log.dirs has 2 directories"),
        ("log.dirs=/a\nmetadata.log.dir=/b", "metadata.log.dir is another than log.dirs"),
        ("metadata.log.dir=/b", "metadata.log.dir stands without log.dirs"),
        # A line that is not of Java's properties.
        ("node.id=\\u12", "cannot be read as Java's properties"),
    ],
)
def test_a_setting_that_cannot_be_honoured_stops_the_start(
    read: Reader, text: str, told: str
) -> None:
    with pytest.raises(ConfigError) as error:
        BrokerSettings(read(text).properties)
    assert told in str(error.value)
    assert "s3cret" not in str(error.value)


@pytest.mark.parametrize(
    "text",
    [
        "principal.builder.class="
        "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
        "delete.topic.enable=true",
        "ssl.protocol=TLSv1.3",
        "zookeeper.connect=localhost:2181",
        "listener.name.x.oauthbearer.sasl.server.callback.handler.class=org.apache.kafka.common."
        "security.oauthbearer.OAuthBearerValidatorCallbackHandler",
        "listener.name.controller.ssl.client.auth=required\ncontroller.listener.names=CONTROLLER",
    ],
)
def test_a_setting_that_means_nothing_is_passed_over_and_named(read: Reader, text: str) -> None:
    file = read(text)
    assert file.properties == {}
    assert file.not_used == (text.partition("=")[0],)


def test_the_place_of_a_node_is_known_by_older_names_too(read: Reader) -> None:
    assert read("broker.id=4").properties == {"node.id": "4"}
    assert read("broker.id=-1").properties == {}
    assert read("log.dir=/a/b").data == Path("/a/b")
    assert read("log.dir=/a\nlog.dirs=/b\nmetadata.log.dir=/b/").data == Path("/b")
    assert read("node.id=3\ncontroller.quorum.voters=3@a:1").properties == {"node.id": "3"}


def test_a_controllers_listener_is_not_opened_and_leaves_no_open_one(read: Reader) -> None:
    file = read("controller.listener.names=ctl\nlisteners=CTL://:1\nadvertised.listeners=CTL://a:1")
    with pytest.raises(ConfigError, match="listeners is empty"):
        read_listeners(BrokerSettings(file.properties), None, None)


def test_no_setting_of_txn_is_passed_over(read: Reader) -> None:
    names = set(BROKER_PROPERTIES)
    taken = read("".join(f"{name}=1\n" for name in names)).properties
    assert set(taken) == names


def test_secrets_are_known_and_a_file_that_others_may_read_is_told(
    read: Reader, caplog: pytest.LogCaptureFixture
) -> None:
    plain = "listener.name.x.plain.sasl.jaas.config"
    assert is_secret("ssl.key.password")
    assert is_secret("listener.name.x.ssl.keystore.key")
    assert is_secret(plain)
    assert not is_secret("listeners")
    file = read(f"{plain}=Plain required user_a=b;\nnum.io.threads=8\nnode.id=1\nnode.id=1")
    assert "user_a" not in repr(file)
    for mode, told in ((0o644, True), (0o640, False)):
        file.path.chmod(mode)
        caplog.clear()
        with caplog.at_level(logging.INFO, "txn"):
            file.log_findings()
        events = [message.split()[0] for message in caplog.messages]
        assert events[:2] == ["settings.not_used", "settings.repeated"]
        assert ("settings.readable_by_others" in events) is told
    assert not read("ssl.key.password=").has_secrets


@pytest.mark.parametrize("path", ["missing", ".", "large"])
def test_a_file_that_cannot_be_read_is_told(tmp_path: Path, path: str) -> None:
    (tmp_path / "large").write_bytes(b"#" * (2 << 20))
    with pytest.raises(ConfigError, match=r"--config .* cannot be read"):
        read_config_file(tmp_path / path)


# ---------------------------------------------------------------- config providers

CLASS = "org.apache.kafka.common.config.provider."


def provided(kind: str, more: str = "") -> str:
    names = {"file": "File", "directory": "Directory", "env": "EnvVar"}
    class_name = f"{CLASS}{names[kind]}ConfigProvider"
    return f"config.providers={kind}\nconfig.providers.{kind}.class={class_name}\n{more}\n"


def test_references_are_filled_in(
    read: Reader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secrets = tmp_path / "secrets.properties"
    secrets.write_text("key.password = pass=word\\u0021 \n")
    (tmp_path / "password").write_text("other\n")
    monkeypatch.setenv("NODE", "9")
    name = "ssl.key.password"
    of_file = read(provided("file", f"{name}=${{file:{secrets}:key.password}}"))
    assert of_file.properties == {name: "pass=word!"}
    assert not of_file.has_secrets
    of_directory = read(provided("directory", f"{name}=${{directory:{tmp_path}:password}}"))
    assert of_directory.properties == {name: "other"}
    assert read(provided("env", "node.id=${env:NODE}")).properties == {"node.id": "9"}
    assert read(provided("env", "node.id=1${env:NODE}2")).properties == {"node.id": "192"}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("ssl.key.password=${env:SOME}", "config.providers names no provider env"),
        (provided("env", "ssl.key.password=${env:NOWHERE}"), "has no such variable"),
        (provided("env", "ssl.key.password=${file:a:b}"), "names no provider file"),
        (provided("env", "ssl.key.password=${emv:HOME}"), "names no provider emv"),
        (
            provided(
                "env", "config.providers.env.param.allowlist.pattern=X.*\nnode.id=${env:HOME}"
            ),
            "allowlist.pattern leaves it out",
        ),
        (provided("env", "config.providers.env.param.allowlist.pattern=("), "cannot be read"),
        (
            provided(
                "env",
                r"config.providers.env.param.allowlist.pattern=\\w+" "\nnode.id=${env:\\u00e9}",
            ),
            "allowlist.pattern leaves it out",  # as in Java, whose \\w is about ASCII
        ),
        (provided("file", "ssl.key.password=${file:/nowhere:a}"), "No such file"),
        (provided("file", "ssl.key.password=${file:/proc/self/environ:a}"), "cannot be resolved"),
        (
            provided(
                "file",
                "config.providers.file.param.allowed.paths=/etc/txn\n"
                "ssl.key.password=${file:/etc/txn/../passwd:root}",
            ),
            "allowed.paths leaves it out",
        ),
        (
            provided("directory", "ssl.key.password=${directory:/etc:../etc/hostname}"),
            "it names no file of the directory",
        ),
        (
            "config.providers=v\nconfig.providers.v.class=a.Vault",
            "names no provider of this broker",
        ),
        ("config.providers=v", "config.providers.v.class names no provider"),
        (provided("env", "config.providers.env.param.other=1"), "is unknown here"),
        ("config.providers.env.class=X", "belongs to no provider"),
    ],
)
def test_a_reference_that_cannot_be_resolved_stops_the_start(
    read: Reader, text: str, told: str
) -> None:
    with pytest.raises(ConfigError) as error:
        read(text)
    assert told in str(error.value)


def test_a_text_that_only_looks_like_a_reference_stays(read: Reader) -> None:
    assert read("ssl.key.password=${a:b}$$").properties == {"ssl.key.password": "${a:b}$$"}
