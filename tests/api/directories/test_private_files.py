"""Only the broker's own user may read its files, under any umask."""

import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

import txn
from support.clients import (
    WAIT_S,
    commit_values,
    create_topic,
    plain_producer,
    read_all,
    send,
    transactional_producer,
)
from support.compacted import ON_CALL, compact, fill, roll
from txn.cli.demo import _workplace
from txn.demo.processes import start_family
from txn.server.lifecycle.broker import service_of

OTHERS = stat.S_IRWXG | stat.S_IRWXO
BUSY = {**ON_CALL, "log.retention.check.interval.ms": 1}


@pytest.fixture(autouse=True)
def umask() -> Iterator[None]:
    """A umask that takes nothing away."""
    before = os.umask(0)
    yield
    os.umask(before)


def open_to_others(root: Path) -> list[str]:
    """Everything from a directory down that has a mode bit of the group or of others."""
    found = [root, *root.rglob("*")]
    return [f"{path} {path.stat().st_mode:o}" for path in found if path.stat().st_mode & OTHERS]


def test_a_data_directory_is_for_its_user_alone(tmp_path: Path) -> None:
    data = tmp_path / "above" / "data"
    with txn.Broker(data, properties=BUSY) as broker:
        servers = broker.bootstrap_servers
        fill(broker, "prices")
        roll(plain_producer(servers), "prices")
        compact(broker)
        create_topic(
            servers, "orders", partitions=2, retention_ms="1", internal_segment_bytes="1000"
        )
        payer = transactional_producer(servers, "payer")
        commit_values(payer, "orders", [b"paid"])
        payer.begin_transaction()
        send(payer, "orders", [b"never"])
        payer.abort_transaction(WAIT_S)
        send(plain_producer(servers, batch_num_messages=1), "orders", [b"x" * 400] * 10)
        read_all(servers, "orders")
        service_of(broker).storage.upkeep.retain(now_ms=1 << 50)
        service_of(broker).storage.upkeep.tick()
        service_of(broker).storage.upkeep.write_recovery_points()
        create_topic(servers, "gone")
        send(plain_producer(servers), "gone", [b"x"])
        admin = AdminClient({"bootstrap.servers": servers})
        admin.delete_topics(["gone"])["gone"].result(WAIT_S)
        assert open_to_others(tmp_path / "above") == []
    assert open_to_others(tmp_path / "above") == []
    with txn.Broker(data):
        assert open_to_others(data) == []


@pytest.mark.parametrize("mode", [0o750, 0o700])
def test_a_directory_that_is_there_keeps_its_mode_and_wider_rights_are_told_once(
    tmp_path: Path, mode: int, caplog: pytest.LogCaptureFixture
) -> None:
    tmp_path.chmod(mode)
    with caplog.at_level(logging.WARNING, "txn"), txn.Broker(tmp_path):
        pass
    told = [line for line in caplog.messages if line.startswith("directory.open_to_others")]
    wanted = f"directory.open_to_others path={tmp_path} mode=0750"
    assert told == ([wanted] if mode == 0o750 else [])
    assert stat.S_IMODE(tmp_path.stat().st_mode) == mode
    assert [path for path in tmp_path.rglob("*") if path.stat().st_mode & OTHERS] == []


def test_the_demos_directory_and_the_logs_of_its_processes_are_private(tmp_path: Path) -> None:
    with _workplace(tmp_path / "demo") as directory:
        start_family(["true"], directory / "broker.log").wait()
    assert open_to_others(tmp_path / "demo") == []
