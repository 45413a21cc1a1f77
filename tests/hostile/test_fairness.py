"""One hostile client beside sound ones: these keep their pace, their timeouts and their data.

More: `HOSTILE_SECONDS=30 pytest tests/hostile/test_fairness.py` for each attack.
"""

import os
import random
import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

import pytest

from hostile.attacks import API_VERSIONS, ATTACKS, Attack, exchange, half_sent_http_requests
from hostile.fairness import STRIKES_MIN, Observations, attacked
from hostile.frames import Values, body_of, frame
from hostile.neighbour import FORGOTTEN_TOPIC, TOPIC
from hostile.target import MIB, TargetBroker
from support.clients import create_topic, plain_producer, read_all, send
from support.served import SERVED_IN_PYTHON
from support.wire_client import RawConnection
from txn.broker.apis.table import TWO_PHASE_FROM
from txn.wire.api_keys import ApiKey
from txn.wire.kio import load_request_schema

SECONDS: Final = float(os.environ.get("HOSTILE_SECONDS", "1.5"))
TRIES: Final = 6
"""A machine that is busy makes one try slow; a broker that can be held makes all of them so."""

DESCRIPTORS: Final = 256
SERVE_WITH_FEW_DESCRIPTORS: Final = f"""\
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, ({DESCRIPTORS}, {DESCRIPTORS}))
from txn.cli import main
main()
"""
GROWTH_MAX: Final = {"groups_with_large_metadata": 400 * MIB}
USUAL_GROWTH_MAX: Final = 200 * MIB
KEPT_MAX: Final = 100 * MIB


class SharedBroker:
    """The broker that the attacks share; a new one once one was harmed."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._count = 0
        self._target: TargetBroker | None = None

    def target(self) -> TargetBroker:
        if self._target is None:
            self._count += 1
            self._target = TargetBroker(self._directory / f"data-{self._count}")
            for topic in (TOPIC, FORGOTTEN_TOPIC):
                create_topic(self._target.bootstrap_servers, topic)
            attacked(self._target, quiet, 0.5)
        return self._target

    def abandon(self) -> None:
        """It was harmed."""
        if self._target is not None:
            self._target.kill()
            self._target = None


MALFORMED_BY_NUMBERS: Final = {ApiKey.DESCRIBE_ACLS, ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS}
"""The number 0 costs the connection there, as in Kafka."""


def quiet(_servers: str) -> Iterator[None]:
    """No attack."""
    while True:
        yield


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedBroker]:
    server = SharedBroker(tmp_path_factory.mktemp("fairness"))
    yield server
    server.abandon()


@pytest.fixture
def target(server: SharedBroker, request: pytest.FixtureRequest) -> Iterator[TargetBroker]:
    failed = request.session.testsfailed
    yield server.target()
    if request.session.testsfailed > failed:
        server.abandon()


def fairest(target: TargetBroker, attack: Attack) -> Observations:
    """The first of some tries that is fair, or the last."""
    for _ in range(TRIES):
        seen = attacked(target, attack, SECONDS)
        if not seen.unfair():
            break
    return seen


@pytest.mark.parametrize("attack", [quiet, *ATTACKS], ids=lambda attack: attack.__name__)
def test_P5_one_hostile_client_holds_nobody_else_up(target: TargetBroker, attack: Attack) -> None:
    before, said = target.gauges(), len(target.log_text())

    seen = fairest(target, attack)

    assert not seen.unfair()
    assert seen.strikes > 0
    assert not target.faults_in_log(said)
    assert seen.grown < GROWTH_MAX.get(attack.__name__, USUAL_GROWTH_MAX), seen.grown / MIB
    target.await_calm(before, memory=KEPT_MAX, descriptors=40, threads=4)


def test_half_sent_http_requests_hold_up_no_probe_and_no_client(tmp_path: Path) -> None:
    """Sixteen of them kept every probe waiting: its listener read one request at a time."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = free.getsockname()
    target = TargetBroker(tmp_path / "data", f"metrics.listener=127.0.0.1:{address[1]}")
    for topic in (TOPIC, FORGOTTEN_TOPIC):
        create_topic(target.bootstrap_servers, topic)

    seen = fairest(target, half_sent_http_requests(address))

    assert not seen.unfair()
    assert seen.strikes >= STRIKES_MIN
    assert not target.stop_and_verify()


def test_P5_a_broker_without_descriptors_serves_who_is_connected_and_recovers(
    tmp_path: Path,
) -> None:
    """An API that was asked for the first time failed with a traceback: it had to be imported."""
    target = TargetBroker(tmp_path / "data", program=("-c", SERVE_WITH_FEW_DESCRIPTORS))
    for topic in (TOPIC, FORGOTTEN_TOPIC):
        create_topic(target.bootstrap_servers, topic)
    said, chance = len(target.log_text()), random.Random(1)
    with ExitStack() as stack:
        connected = stack.enter_context(RawConnection(target.bootstrap_servers))
        with suppress(OSError):
            for _ in range(DESCRIPTORS + 50):
                other = stack.enter_context(RawConnection(target.bootstrap_servers))
                other.socket.settimeout(0.5)
                exchange(other, frame(API_VERSIONS, 0, b""))
        for key, (_, newest) in SERVED_IN_PYTHON.items():
            version = TWO_PHASE_FROM - 1 if key == ApiKey.INIT_PRODUCER_ID else newest
            body = body_of(load_request_schema(key, version), Values(chance, "first"))
            try:
                exchange(connected, frame(key, version, body))
            except ConnectionAbortedError:
                assert key in MALFORMED_BY_NUMBERS
                connected = stack.enter_context(RawConnection(target.bootstrap_servers))
    assert not target.faults_in_log(said)
    create_topic(target.bootstrap_servers, "later")
    send(plain_producer(target.bootstrap_servers), "later", [b"taken"])
    assert read_all(target.bootstrap_servers, "later") == [b"taken"]
    assert not target.stop_and_verify()
