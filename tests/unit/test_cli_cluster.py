"""`--command-config` and `-X`: read as Kafka's tools read them, without a traceback or a secret."""

import shlex
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txn.cli.cluster import Cluster, cluster
from txn.errors import ConfigError

SECRET = "hunter2"
PROPERTIES = rf"""
# of Kafka's own tools
! another comment
security.protocol : SASL_SSL
sasl.mechanism=SCRAM-SHA-512
sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \
    username="\u0061nn" \
    password="{SECRET}\\n";
ssl.endpoint.identification.algorithm=
client.id=console
bootstrap.servers=kafka-1\:9092
"""


def test_a_file_is_read_by_javas_rules(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text(PROPERTIES)
    found = cluster(None, path, None)
    assert found.servers == "kafka-1:9092"
    assert found.options == f"--bootstrap kafka-1:9092 --command-config {path}"
    assert (found.security.username, found.security.password) == ("ann", f"{SECRET}\n")
    assert not found.security.check_hostname
    assert SECRET not in repr(found)


def test_settings_of_the_command_line_count_before_those_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text("security.protocol=SASL_SSL\nbootstrap.servers=a:1")
    found = cluster("b:2", path, ["security.protocol=PLAINTEXT", "ssl.ca.location=/a=b"])
    assert (found.servers, found.security.protocol) == ("b:2", "PLAINTEXT")


def test_a_secret_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", SECRET)
    settings = ["security.protocol=SASL_SSL", "sasl.mechanism=PLAIN", "sasl.username=ann"]
    found = cluster(None, None, [*settings, "sasl.password=${env:KAFKA_PASSWORD}"])
    assert found.security.password == SECRET
    assert SECRET not in found.options


def test_the_options_of_a_later_command_reach_the_same_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Advice such as `txn transactions abort …` lacked every -X, and quotes around a file."""
    monkeypatch.setenv("KAFKA_PASSWORD", SECRET)
    path = tmp_path / "a b.properties"
    path.write_text("sasl.mechanism=PLAIN\nsasl.username=ann")
    password = "sasl.password=${env:KAFKA_PASSWORD}"
    given = ["security.protocol=SASL_SSL", "ssl.ca.location=/my ca.pem", password]
    first = cluster("b:2", path, given)
    words = shlex.split(first.options)
    assert words[:4] == ["--bootstrap", "b:2", "--command-config", str(path)]
    assert words[4::2] == ["-X", "-X", "-X"]
    assert cluster(words[1], Path(words[3]), words[5::2]) == first


def test_a_secret_of_the_command_line_is_not_repeated() -> None:
    settings = ["security.protocol=SASL_SSL", "sasl.mechanism=PLAIN", "sasl.username=ann"]
    found = cluster(None, None, [*settings, f"sasl.password={SECRET}"])
    assert "-X 'sasl.password=…'" in found.options
    assert SECRET not in found.options


def test_nothing_given_is_a_broker_of_this_machine() -> None:
    assert cluster(None, None, None) == Cluster()


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("securty.protocol=SSL", "unknown setting 'securty.protocol'; did you mean security.proto"),
        ("security_protocol=SSL", "did you mean security.protocol"),
        (f"sasl.password={SECRET}", "security.protocol is missing"),
        (f"sasl.password=${{env:NO_SUCH}}{SECRET}", "sasl.password refers to .*: set it"),
        (f"sasl.password=\\u12{SECRET}", "cannot be read as Java's properties"),
        ("x" * (2 << 20), "is no file of properties"),
    ],
)
def test_a_file_that_does_not_serve_is_told_in_one_sentence(
    tmp_path: Path, content: str, told: str
) -> None:
    path = tmp_path / "client.properties"
    path.write_text(content)
    with pytest.raises(ConfigError, match=told) as raised:
        cluster(None, path, None)
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize(
    ("config", "settings", "told"),
    [
        (Path("/nowhere/x"), None, "--command-config '/nowhere/x' cannot be read: No such file"),
        (Path("/"), None, "cannot be read: Is a directory"),
        (None, [SECRET], "-X takes NAME=VALUE"),
        (None, [f"={SECRET}"], "-X takes NAME=VALUE"),
    ],
)
def test_a_wrong_option_is_told_in_one_sentence(
    config: Path | None, settings: list[str] | None, told: str
) -> None:
    with pytest.raises(ConfigError, match=told) as raised:
        cluster(None, config, settings)
    assert SECRET not in str(raised.value)


NAMES = ("security.protocol", "sasl.mechanism", "sasl.username", "sasl.jaas.config", "x", "")
PIECES = (*NAMES, *"=: \t\n\r\\u!#ü\x00\x1c", "\\u12", "\\ud800", "${env:X}", "SSL", "SASL_SSL")


@given(st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=3))))
def test_no_file_ends_in_a_traceback(parts: list[str]) -> None:
    with TemporaryDirectory() as directory:
        path = Path(directory) / "client.properties"
        path.write_bytes("".join(parts).encode("utf-8", "surrogatepass"))
        assert message_of(path) is not None


@given(st.lists(st.sampled_from([*"=: \n\\", *NAMES, "\\u12", "sEcReT"])))
def test_no_message_shows_the_value_of_a_secret(parts: list[str]) -> None:
    with TemporaryDirectory() as directory:
        path = Path(directory) / "client.properties"
        path.write_text("sasl.password=sEcReT" + "".join(parts).replace("\n", "\\\n"))
        assert "sEcReT" not in message_of(path)


def message_of(path: Path) -> str:
    try:
        cluster(None, path, None)
    except ConfigError as error:
        return str(error)
    return ""
