"""The rules and the dashboard of deploy/ in a real Prometheus, beside brokers that are used and
harmed.

Runs where `prometheus` and `promtool` are on the PATH. tests/README.md has the commands that
build them.
"""

import datetime
import json
import re
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import confluent_kafka
import pytest
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

import txn
from harnesses.peers.kafka import free_port
from support.brokers import BrokerProcess
from support.certificates import Issuer
from support.clients import (
    WAIT_S,
    commit_values,
    create_topic,
    plain_producer,
    send,
    transactional_producer,
)
from support.command_line import run_txn
from support.damaged import flip_bit
from support.prometheus import Prometheus, is_here, prometheus, wait_for
from txn.config import STANDARD_AUTHORIZER

pytestmark = [
    pytest.mark.skipif(not is_here(), reason="no prometheus and promtool on the PATH"),
    pytest.mark.timeout(400),
]

DEPLOY: Final = Path(__file__).parents[3] / "deploy"
ALERTS: Final = DEPLOY / "prometheus" / "txn-alerts.yml"
DASHBOARD: Final = DEPLOY / "grafana" / "txn.json"

PASSWORD: Final = "a password"

HURRIED: Final = {
    r"for: \d+m": "for: 1s",
    r"\[\d+m\]": "[5s]",
    r"> 900": "> 3",
}
"""Changes to the rules, so that they fire within seconds."""

USED: Final = {
    *("TxnTransactionHangs", "TxnReadersHeldBack", "TxnGroupFallsBehind", "TxnLoginsFail"),
    "TxnCertificateExpires",
}
"""Alerts of the broker that is used."""

HARMED: Final = {"TxnPartitionFailed", "TxnCoordinatorFailed"}
"""Alerts of the broker whose files are damaged."""


@dataclass
class Scene:
    """Two brokers, and a Prometheus with the rules as they are and hurried ones."""

    prometheus: Prometheus
    used: str
    harmed: str
    harmed_broker: BrokerProcess


class Load:
    """Clients of a broker until `stop`: transactions, a group that lags, refused log-ins and acts.

    `ada` may log in and nothing else, `eve` is unknown.
    """

    def __init__(self, servers: str, secured: str, issuer: Issuer) -> None:
        self._servers = servers
        self._secured = secured
        self._issuer = issuer
        self._is_over = threading.Event()
        self._threads = [
            threading.Thread(target=work)
            for work in (self._commit, self._hold_back, self._read, self._knock, self._trespass)
        ]

    def start(self) -> None:
        password = self._issuer.directory / "password"
        password.write_text(PASSWORD)
        added = ("users", "add", "ada", "--password-file", password, "--bootstrap", self._servers)
        assert run_txn(*added)[::2] == (0, "")
        for topic in ("orders", "stuck"):
            create_topic(self._servers, topic)
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    def _commit(self) -> None:
        with txn.Producer(bootstrap_servers=self._servers, transactional_id="loader") as producer:
            while not self._is_over.wait(0.05):
                with producer.transaction() as t:
                    t.produce("orders", b"1")

    def _hold_back(self) -> None:
        hanging = transactional_producer(self._servers, "pay-3")
        hanging.begin_transaction()
        send(hanging, "stuck", [b"open"])
        producer = plain_producer(self._servers)
        while not self._is_over.wait(0.1):
            send(producer, "stuck", [b"held back"])

    def _read(self) -> None:
        consumer = txn.Consumer(
            bootstrap_servers=self._servers, group_id="slow", auto_offset_reset="earliest"
        )
        consumer.subscribe(["orders"])
        consumer.commit(offsets=[TopicPartition("orders", 0, 0)], asynchronous=False)
        while not self._is_over.wait(0.1):
            consumer.poll(0)
        consumer.close()

    def _knock(self) -> None:
        settings = self._login("eve")
        clients = [confluent_kafka.Producer(settings) for _ in range(4)]
        while not self._is_over.wait(0.05):
            for client in clients:
                client.poll(0)

    def _trespass(self) -> None:
        client = AdminClient(self._login("ada"))
        while not self._is_over.wait(0.2):
            (done,) = client.create_topics([NewTopic("hers", 1)]).values()
            with pytest.raises(KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
                done.result(WAIT_S)

    def _login(self, user: str) -> dict[str, Any]:
        """Settings of a client of the secured listener."""
        return self._issuer.client(
            security_protocol="sasl_ssl",
            sasl_mechanism="SCRAM-SHA-512",
            sasl_username=user,
            sasl_password=PASSWORD,
            bootstrap_servers=self._secured,
            logger=_Silence(),
            reconnect_backoff_ms=10,
            reconnect_backoff_max_ms=20,
        )


class _Silence:
    def log(self, *_: object) -> None:
        """Say nothing: each log-in is refused."""


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    place = tmp_path_factory.mktemp("prometheus")
    issuer = Issuer(place / "tls")
    ports = {"PLAIN": free_port(), "CLIENTS": free_port()}
    used, harmed = (f"127.0.0.1:{free_port()}" for _ in range(2))
    broker = BrokerProcess(
        place / "used",
        f"metrics.listener={used}",
        "listener.security.protocol.map=PLAIN:PLAINTEXT,CLIENTS:SASL_SSL",
        f"ssl.keystore.location={issuer.issue('broker', not_after=soon())}",
        "sasl.enabled.mechanisms=SCRAM-SHA-512",
        f"authorizer.class.name={STANDARD_AUTHORIZER}",
        "super.users=User:ANONYMOUS",
        listeners=ports,
    )
    damage(place / "harmed")
    other = BrokerProcess(place / "harmed", f"metrics.listener={harmed}")
    load = Load(broker.servers["PLAIN"], broker.servers["CLIENTS"], issuer)
    hurried = ALERTS.read_text()
    for pattern, replacement in HURRIED.items():
        hurried, changes = re.subn(pattern, replacement, hurried)
        assert changes, pattern
    (place / "hurried.yml").write_text(hurried.replace("name: txn", "name: hurried"))
    (place / "own").mkdir()
    try:
        load.start()
        rules = [ALERTS, place / "hurried.yml"]
        with prometheus(place / "own", [used, harmed], rules) as running:
            yield Scene(running, used, harmed, other)
    finally:
        load.stop()
        broker.kill()
        other.kill()


def soon() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=7)


def damage(data: Path) -> None:
    """Leave a directory with a damaged partition of `__transaction_state`."""
    with txn.Broker(data) as broker:
        commit_values(transactional_producer(broker.bootstrap_servers, "pay"), "orders", [b"1"])
    logs = data.glob("__transaction_state-*/*.log")
    (written,) = [path for path in logs if path.stat().st_size]
    flip_bit(written, 100)


def test_every_target_is_up(scene: Scene) -> None:
    wait_for(lambda: set(scene.prometheus.targets().values()) == {"up"})
    assert scene.prometheus.targets() == {scene.used: "up", scene.harmed: "up"}


def test_alerts_fire_for_the_broker_with_the_fault(scene: Scene) -> None:
    wait_for(lambda: scene.prometheus.firing().keys() >= USED | HARMED)
    firing = scene.prometheus.firing()
    assert firing.keys() == USED | HARMED
    about = {
        name: {alert["labels"]["instance"] for alert in alerts} for name, alerts in firing.items()
    }
    assert {name for name, told in about.items() if told == {scene.used}} == USED
    assert {name for name, told in about.items() if told == {scene.harmed}} == HARMED
    summaries = [each["annotations"]["summary"] for alerts in firing.values() for each in alerts]
    assert [text for text in summaries if "<" in text] == []  # a template that cannot be filled
    (held_back,) = firing["TxnReadersHeldBack"]
    assert "the last stable offset of stuck-0 falls behind" in held_back["annotations"]["summary"]
    (behind,) = firing["TxnGroupFallsBehind"]
    assert behind["labels"]["group"] == "slow"


def test_every_rule_is_evaluated_without_error(scene: Scene) -> None:
    assert wait_for(lambda: all(rule["health"] != "unknown" for rule in scene.prometheus.rules()))
    rules = scene.prometheus.rules()
    assert len(rules) == 2 * ALERTS.read_text().count("- alert: ")
    assert {(rule["health"], rule.get("lastError", "")) for rule in rules} == {("ok", "")}


def expressions() -> list[tuple[str, str]]:
    """(panel, expression) of the dashboard, its variables filled in as Grafana does for `All`."""
    variables = {"$job": ".*", "$instance": ".*", "$__rate_interval": "5s"}
    found = []
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel.get("targets", ()):
            expression = target["expr"]
            for name, value in variables.items():
                expression = expression.replace(name, value)
            found.append((panel["title"], expression))
    return found


@pytest.mark.parametrize(("panel", "expression"), expressions())
def test_every_panel_has_data(scene: Scene, panel: str, expression: str) -> None:
    assert "$" not in expression
    found = wait_for(lambda: bool(scene.prometheus.query(expression)), 20)
    assert found, f"{panel}: nothing for {expression}"


def test_the_variables_of_the_dashboard_have_values(scene: Scene) -> None:
    told = scene.prometheus.query("txn_network_reactors")
    assert {(one["metric"]["job"], one["metric"]["instance"]) for one in told} == {
        ("txn", scene.used),
        ("txn", scene.harmed),
    }


def test_a_broker_that_is_gone_fires(scene: Scene) -> None:
    scene.harmed_broker.stop()
    wait_for(lambda: "TxnBrokerDown" in scene.prometheus.firing())
    (down,) = scene.prometheus.firing()["TxnBrokerDown"]
    assert down["labels"]["instance"] == scene.harmed
    assert scene.prometheus.targets() == {scene.used: "up", scene.harmed: "down"}


def test_promtool_takes_the_rules_and_their_tests_pass() -> None:
    for command in (
        ("check", "rules", "--lint=all", "--lint-fatal", str(ALERTS)),
        ("test", "rules", str(Path(__file__).parent / "alerts.test.yml")),
    ):
        done = subprocess.run(["promtool", *command], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
