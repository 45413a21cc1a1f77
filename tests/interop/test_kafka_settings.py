"""Settings beside those of Apache Kafka: every name is known, and a file is read alike."""

import json
from pathlib import Path
from typing import Any

import javaproperties
import pytest

from harnesses.peers.jars import NODE_4_2, NODE_4_4, JarSet, run_java
from support.command_line import run_txn
from txn.config import BROKER_PROPERTIES
from txn.server.settings.config_file import READ_HERE
from txn.server.settings.config_providers import is_about_providers
from txn.server.settings.kafka_settings import DEMANDS, FORMER, NOT_USED

PROGRAM = Path(__file__).parent / "java" / "KafkaSettings.java"

pytestmark = [pytest.mark.java, pytest.mark.timeout(120)]

ODD_LINES = (
    b"a=1",
    b"  b : 2  ",
    b"c\t3",
    b"d\\=e=f\\:g",
    b"h = \\u00e9\\u4e2d \xe9",
    b"! no\\",
    b"# no = 1",
    b"i = one, \\\n      two",
    b"j = odd\\\\\\\n  k",
    b"l = even\\\\",
    b"m",
    b"n=",
    b"=o",
    b"p\\\n  q=1",
    b"r = a\rs = b\r\nt = c",
    b"u=\\t\\n\\z\\ ",
    b"v==w",
    b"x:=y",
    b"z = \\ud83d\\ude00",
    b"a=again",
    b"\\ = blank",
    b"last = \\",
)


def kafka(*arguments: str, jars: JarSet = NODE_4_4) -> Any:
    return json.loads(run_java(str(PROGRAM), *arguments, jars=jars))


def test_every_broker_setting_of_kafka_is_known_and_none_is_made_up() -> None:
    of_kafka = {name for jars in (NODE_4_2, NODE_4_4) for name in kafka("names", jars=jars)}
    known = BROKER_PROPERTIES.keys() | NOT_USED | DEMANDS.keys() | READ_HERE
    unknown = {name for name in of_kafka - known if not is_about_providers(name)}
    assert sorted(unknown) == []
    # Kafka's authorizer reads two settings that its own table lacks, and its throttles three.
    assert BROKER_PROPERTIES.keys() - of_kafka == {
        *("allow.everyone.if.no.acl.found", "super.users"),
        *("leader.replication.throttled.rate", "follower.replication.throttled.rate"),
        "replica.alter.log.dirs.io.max.bytes.per.second",
        *("durability", "max.partitions", "metrics.allow.remote"),
        *("metrics.group.partitions.max", "metrics.listener"),
    }
    invented = (NOT_USED | DEMANDS.keys() | READ_HERE) - of_kafka - FORMER
    assert {name for name in invented if not name.startswith("password.encoder.")} == {
        "delegation.token.master.key"  # of earlier versions, as those of the encoder
    }


def test_a_file_with_every_setting_that_is_new_in_4_4_starts_a_broker(tmp_path: Path) -> None:
    before, defaults = set(kafka("names", jars=NODE_4_2)), kafka("defaults")
    new = {name: value for name, value in defaults.items() if name not in before}
    assert len(new) >= 30, sorted(new)
    path = tmp_path / "server.properties"
    lines = [f"{name}={value}\n" for name, value in new.items()]
    path.write_text(f"node.id=1\nlog.dirs={tmp_path / 'data'}\n{''.join(lines)}")
    code, out, err = run_txn("serve", "--config", path, "--listen", "127.0.0.1:0", "--check")
    assert code == 0, f"{out}\n{err}"
    unknown = "group.consumer.assinment.interval.ms"
    path.write_text(f"{path.read_text()}{unknown}=1\n")
    _, told, said = run_txn("serve", "--config", path, "--listen", "127.0.0.1:0", "--check")
    assert unknown in told + said
    assert unknown not in out + err


def test_a_file_is_read_as_java_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_bytes(b"\n".join(ODD_LINES))
    assert javaproperties.loads(path.read_bytes().decode("latin-1")) == kafka("read", str(path))
