"""A transactional job over SASL_SSL, and a broker that is killed with SIGKILL under it."""

import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

import txn
from harnesses.peers.kafka import free_port
from support.brokers import BrokerProcess
from support.certificates import Issuer
from support.clients import WAIT_S, create_topic, plain_producer, read_all, send
from txn.errors import Action, TxnError

pytestmark = [pytest.mark.crash, pytest.mark.timeout(180)]

RECORDS: Final = 3000
KILLS: Final = 3
USER, PASSWORD = "alice", "al-secret"


@pytest.fixture
def issuer(tmp_path: Path) -> Issuer:
    return Issuer(tmp_path / "certificates")


@pytest.fixture
def broker(issuer: Issuer, tmp_path: Path) -> Iterator[BrokerProcess]:
    settings = {
        "ssl.keystore.location": issuer.issue("broker"),
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "connections.max.reauth.ms": 1500,
    }
    process = BrokerProcess(
        tmp_path / "data",
        *(f"{name}={value}" for name, value in settings.items()),
        listeners={"PLAINTEXT": free_port(), "SASL_SSL": free_port()},
    )
    credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    change = UserScramCredentialUpsertion(USER, credential, PASSWORD.encode())
    admin = AdminClient({"bootstrap.servers": process.bootstrap_servers})
    admin.alter_user_scram_credentials([change])[USER].result(WAIT_S)
    yield process
    process.stop()


class Job:
    """Copies a topic in transactions until its group's offset is at the end, over errors."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._settings = settings
        self.copied = 0
        """Records of transactions that are known to be committed: a commit may be in doubt."""
        self.is_done = False
        self.errors: list[TxnError] = []
        self.failure: Exception | None = None
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            while not self.is_done:
                self._copy()
        except Exception as error:  # told by the waiting test
            self.failure = error

    def _copy(self) -> None:
        consumer = txn.Consumer(
            self._settings,
            group_id="copier",
            auto_offset_reset="earliest",
            session_timeout_ms=6000,  # one that could not leave is waited for
        )
        consumer.subscribe(["orders"])
        try:
            with txn.Producer(self._settings, transactional_id="copier") as producer:
                while not self.is_done:
                    self._copy_some(consumer, producer)
        except TxnError as error:
            self.errors.append(error)
            if error.action is Action.GIVE_UP:
                raise
        finally:
            consumer.close()

    def _copy_some(self, consumer: txn.Consumer, producer: txn.Producer) -> None:
        try:
            # librdkafka may wait for a group's coordinator that is gone; `txn` gives up in time.
            with producer.transaction(consumer, timeout=5) as t:
                messages = consumer.consume(20, timeout=1)
                for message in messages:
                    t.produce("copies", message.value())
            self.copied += len(messages)
            if not messages:
                (committed,) = consumer.committed([TopicPartition("orders", 0)], WAIT_S)
                self.is_done = committed.offset == RECORDS
        except TxnError as error:
            self.errors.append(error)
            if error.action is not Action.ABORT_AND_REWIND:
                raise


def test_P3_a_job_over_sasl_ssl_copies_each_record_once_though_the_broker_is_killed(
    broker: BrokerProcess, issuer: Issuer
) -> None:
    for topic in ("orders", "copies"):
        create_topic(broker.bootstrap_servers, topic)
    values = [b"%d" % number for number in range(RECORDS)]
    send(plain_producer(broker.bootstrap_servers), "orders", values)
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    job = Job(
        {
            "bootstrap.servers": broker.servers["SASL_SSL"],
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": USER,
            "sasl.password": PASSWORD,
            "ssl.ca.location": str(issuer.path),
        }
    )

    job.thread.start()
    for kill in range(1, KILLS + 1):
        _await_copies(job, kill * RECORDS // (KILLS + 1))
        time.sleep(chance.random() / 10)
        broker.kill()
        broker.restart()
    job.thread.join(120)

    assert job.failure is None, f"seed {seed}: {job.failure!r}"
    assert job.is_done, f"seed {seed}: {job.copied} copied"
    assert read_all(broker.bootstrap_servers, "copies") == values, f"seed {seed}"


def _await_copies(job: Job, count: int) -> None:
    deadline = time.monotonic() + 60
    while job.copied < count and job.thread.is_alive():
        assert time.monotonic() < deadline, f"{job.copied} of {count} copied: {job.errors}"
        time.sleep(0.01)
