"""Tasks that take part in a two-phase commit (KIP-939): a decision outlives a power failure."""

import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from harnesses.black_box.power import lose_power, note_reactors_syncs, only_what_is_sure
from support.brokers import BrokerProcess
from support.clients import create_topic, read_all
from txn._core import KafkaClient
from txn.errors import ConfigError
from txn.spark.columns import one_record
from txn.spark.driver import Driver, DriverSettings
from txn.spark.errors import LostError
from txn.spark.identities import OwnIdentities
from txn.spark.options import sink_settings
from txn.spark.progress import Slot
from txn.spark.writer import NO_QUERY, begin_batch, write_task

pytestmark = pytest.mark.crash

ALLOWED = "transaction.two.phase.commit.enable=true"
ROWS = [b"a", b"b", b"c"]
TIMEOUT_MS = 60_000
COLUMNS = StructType([StructField("value", BinaryType())])


class Killed(Exception):
    """The driver is gone."""


class KilledBeforeCommits:
    """A client of a driver that is killed once it has decided, before it commits a task."""

    def __init__(self, client: KafkaClient, decider: str) -> None:
        self._client = client
        self._decider = decider

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def end_txn(
        self, transactional_id: str, producer_id: int, producer_epoch: int, commit: bool
    ) -> tuple[int, int]:
        if transactional_id != self._decider:
            raise Killed
        return self._client.end_txn(transactional_id, producer_id, producer_epoch, commit)


def settings_of(name: str) -> DriverSettings:
    return DriverSettings(name, "__txn_spark", TIMEOUT_MS, margin_ms=1000)


def decide_and_be_killed(servers: str, name: str, topic: str, is_two_phase: bool | None) -> None:
    """Write a task's rows, decide to commit them, and commit nothing."""
    client = KafkaClient(servers)
    handout = Driver(client, settings_of(name)).begin()
    who = OwnIdentities().claim(client, handout, TIMEOUT_MS, is_two_phase=is_two_phase)
    writer = client.writer(who.transactional_id, who.producer_id, who.producer_epoch)
    for row in ROWS:
        one_record(writer, topic, b"k", row)
    slot = Slot(0, who, writer.flush())
    killed: Any = KilledBeforeCommits(client, f"{name}.driver")
    with pytest.raises(Killed):
        Driver(killed, settings_of(name)).decide(handout, "query", 0, [slot])
    client.close()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    program = ("-m", "harnesses.black_box.broken", "power")
    started = BrokerProcess(tmp_path / "data", ALLOWED, durability="commit", program=program)
    yield started
    started.stop()


def fail_the_power(broker: BrokerProcess) -> None:
    note_reactors_syncs(broker.data, broker.pid)
    broker.kill()
    lose_power(broker.data, only_what_is_sure)
    broker.restart()


@pytest.mark.parametrize("is_two_phase", [None, True])
def test_P2_decided_rows_survive_a_power_failure(
    broker: BrokerProcess, is_two_phase: bool | None
) -> None:
    """Rows reached the disk with their own EndTxn alone: the power took what was decided."""
    create_topic(broker.bootstrap_servers, "out")
    decide_and_be_killed(broker.bootstrap_servers, "q", "out", is_two_phase)
    assert read_all(broker.bootstrap_servers, "out") == []
    fail_the_power(broker)

    client = KafkaClient(broker.bootstrap_servers)
    Driver(client, settings_of("q")).begin()
    client.close()
    assert read_all(broker.bootstrap_servers, "out") == ROWS


def test_without_two_phase_commit_a_power_failure_is_told(broker: BrokerProcess) -> None:
    create_topic(broker.bootstrap_servers, "out")
    decide_and_be_killed(broker.bootstrap_servers, "q", "out", False)
    fail_the_power(broker)

    client = KafkaClient(broker.bootstrap_servers)
    with pytest.raises(LostError, match="3 rows"):
        Driver(client, settings_of("q")).begin()
    client.close()
    assert read_all(broker.bootstrap_servers, "out") == []


def test_undecided_rows_of_a_two_phase_commit_are_aborted_by_the_next_driver(
    broker: BrokerProcess,
) -> None:
    """They never time out, so nobody else would."""
    create_topic(broker.bootstrap_servers, "out")
    client = KafkaClient(broker.bootstrap_servers)
    handout = Driver(client, settings_of("q")).begin()
    who = OwnIdentities().claim(client, handout, TIMEOUT_MS, is_two_phase=True)
    writer = client.writer(who.transactional_id, who.producer_id, who.producer_epoch)
    one_record(writer, "out", b"k", b"undecided")
    writer.flush()
    [(*_, timeout_ms)] = client.describe_transactions([who.transactional_id])
    assert timeout_ms == 2**31 - 1
    fail_the_power(broker)

    again = KafkaClient(broker.bootstrap_servers)
    Driver(again, settings_of("q")).begin()
    assert again.list_transactions(["Ongoing"], "q.") == []
    for each in (client, again):
        each.close()
    assert read_all(broker.bootstrap_servers, "out", isolation="read_committed") == []


def test_a_write_without_a_name_times_out(broker: BrokerProcess) -> None:
    """After a kill nobody comes back to end its transactions, which hold back readers."""
    create_topic(broker.bootstrap_servers, "out")
    options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": "out"}
    writer = begin_batch(sink_settings(options), COLUMNS)
    rows = pa.RecordBatch.from_pydict({"value": [b"a"]})
    slot = write_task(writer.work, NO_QUERY, 0, 0, [rows]).slot
    assert slot is not None
    client = KafkaClient(broker.bootstrap_servers)
    [(*_, timeout_ms)] = client.describe_transactions([slot.identity.transactional_id])
    client.close()
    assert timeout_ms == sink_settings(options).timeout_ms
    writer.abort([])

    with pytest.raises(ConfigError, match=r"needs a name to come back to.* Set txn\.id"):
        begin_batch(sink_settings({**options, "txn.two.phase.commit": "true"}), COLUMNS)


@pytest.mark.peer
def test_where_it_is_not_allowed_tasks_go_without_or_refuse(kafka_peer: str) -> None:
    name = f"q-{secrets.token_hex(4)}"
    client = KafkaClient(kafka_peer)
    handout = Driver(client, settings_of(name)).begin()
    who = OwnIdentities().claim(client, handout, TIMEOUT_MS)
    assert who.producer_id >= 0
    with pytest.raises(ConfigError, match=r"txn\.two\.phase\.commit=true asks for"):
        OwnIdentities().claim(client, handout, TIMEOUT_MS, is_two_phase=True)
    client.close()
