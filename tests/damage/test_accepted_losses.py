"""`txn log accept-loss`: an operator gives up damaged data, by name, and all is served again."""

import json
import logging
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from typer.testing import CliRunner, Result

import txn
from support.brokers import BrokerProcess
from support.clients import (
    WAIT_S,
    commit_values,
    create_topic,
    ends,
    plain_producer,
    read_all,
    send,
    transactional_producer,
)
from support.damaged import (
    KAFKA_STORAGE_ERROR,
    VALUES,
    closed_directory,
    events,
    fetch_code,
    flip_bit,
    segment_of,
)
from txn import _core
from txn.cli.log import log_app
from txn.inspect.verify import verify
from txn.storage import checkpoints, log_upkeep, losses, past
from txn.storage.directory import CLEAN
from txn.storage.losses import ACCEPTED_LOSSES

pytestmark = pytest.mark.crash

STEPS = 6


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory whose broker was stopped in order."""
    return closed_directory(tmp_path_factory.mktemp("closed") / "data")


@pytest.fixture
def data(closed: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(closed, tmp_path / "data"))


def accept(data: Path, *words: str) -> Result:
    return CliRunner().invoke(log_app, ["accept-loss", str(data), *words])


def cut(data: Path) -> None:
    intact = segment_of(data).read_bytes()
    segment_of(data).write_bytes(b"".join(batches_of(intact)[:20]))


def overwritten(data: Path) -> None:
    """The batches from offset 11 on are garbage, after a kill."""
    (data / CLEAN).unlink()
    intact = segment_of(data).read_bytes()
    size = sum(len(batch) for batch in batches_of(intact)[:11])
    segment_of(data).write_bytes(intact[:size] + b"\xa5" * (len(intact) - size))


def batches_of(stored: bytes) -> list[bytes]:
    batches = []
    while stored:
        size = 12 + int.from_bytes(stored[8:12])
        batches.append(stored[:size])
        stored = stored[size:]
    return batches


def without_directory(data: Path) -> None:
    shutil.rmtree(data / "bad-0")


def emptied(data: Path) -> None:
    segment_of(data).write_bytes(b"")


def directory_instead(data: Path) -> None:
    segment_of(data).unlink()
    segment_of(data).mkdir()


def file_instead(data: Path) -> None:
    shutil.rmtree(data / "bad-0")
    (data / "bad-0").write_bytes(b"x")


@pytest.mark.parametrize(
    ("lose", "kept"),
    [
        (cut, 20),
        (overwritten, 11),
        (without_directory, 0),
        (emptied, 0),
        (directory_instead, 0),
        (file_instead, 0),
    ],
)
def test_P9_what_is_given_up_is_named_and_the_log_goes_on_where_it_had_come(
    data: Path, caplog: pytest.LogCaptureFixture, lose: Callable[[Path], None], kept: int
) -> None:
    caplog.set_level(logging.INFO)
    lose(data)
    before = {path: path.read_bytes() for path in data.rglob("*") if path.is_file()}

    looked = accept(data, "bad-0", "--dry-run", "--json")

    assert looked.exit_code == 0, looked.output
    (seen,) = json.loads(looked.stdout)
    assert seen["partition"] == "bad-0"
    assert seen["next_offset"] == 21
    assert seen["kept_end"] in (kept, None)
    assert before == {path: path.read_bytes() for path in data.rglob("*") if path.is_file()}

    assert accept(data, "bad-0").exit_code == 0
    with txn.Broker(data) as broker:
        servers = broker.bootstrap_servers
        assert read_all(servers, "good") == VALUES
        assert read_all(servers, "bad") == VALUES[:kept]
        assert send(plain_producer(servers), "bad", [b"new"]) == [21]
        assert read_all(servers, "bad") == [*VALUES[:kept], b"new"]
        assert ends(servers, "bad")[1] == 22
    (line,) = events(caplog, "log.loss_accepted")
    assert "topic=bad partition=0" in line
    assert "next_offset=21" in line
    assert not (data / ACCEPTED_LOSSES).exists()
    assert not verify(data).findings
    caplog.clear()
    with txn.Broker(data) as broker:  # and it stays so
        assert read_all(broker.bootstrap_servers, "bad") == [*VALUES[:kept], b"new"]
    assert not any(line.startswith("log.") for line in caplog.messages)


def test_a_loss_is_given_up_in_the_directory_that_one_stands_in(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The directory above `bad-0` had an empty name, and the start failed at its sync."""
    cut(data)
    monkeypatch.chdir(data)
    assert accept(Path(), "bad-0").exit_code == 0
    with txn.Broker(".") as broker:
        assert read_all(broker.bootstrap_servers, "bad") == VALUES[:20]


def test_P9_records_after_a_loss_are_written_in_a_later_leader_epoch(data: Path) -> None:
    cut(data)
    accept(data, "bad-0")
    with txn.Broker(data) as broker:
        send(plain_producer(broker.bootstrap_servers), "bad", [b"new"])
        client = _core.KafkaClient(broker.bootstrap_servers, timeout_ms=1000)
        assert list(client.fetch("bad", 0, 21, 22))
    epochs = (data / "bad-0" / "leader-epoch-checkpoint").read_text().splitlines()
    assert epochs[-1].split()[1] == "21"
    assert int(epochs[-1].split()[0]) > int(epochs[2].split()[0])


def test_what_is_not_damaged_or_not_there_cannot_be_given_up(data: Path) -> None:
    cut(data)
    refused = accept(data, "bad-0", "good-0")
    assert (refused.exit_code, refused.stderr) == (
        1,
        "txn: nothing is damaged in good-0, so there is nothing to give up\n",
    )
    unknown = accept(data, "worse-0")
    assert unknown.exit_code == 2
    assert "there is no partition worse-0; the topics here are: " in unknown.stderr
    assert accept(data, "__cluster_metadata-0").exit_code == 2
    assert not (data / ACCEPTED_LOSSES).exists()
    with txn.Broker(data):
        used = accept(data, "bad-0")
    assert used.exit_code == 2
    assert "is in use by another broker" in used.stderr


def test_P9_a_loss_that_was_accepted_of_other_damage_is_not_carried_out(
    data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cut(data)
    assert accept(data, "bad-0").exit_code == 0
    emptied(data)
    with txn.Broker(data) as broker:
        assert fetch_code(broker.bootstrap_servers, "bad") == KAFKA_STORAGE_ERROR
    assert events(caplog, "log.loss_not_accepted")
    assert segment_of(data).read_bytes() == b""


@pytest.mark.parametrize("step", range(STEPS))
def test_P9_a_kill_while_a_loss_is_carried_out_costs_nothing_more(
    data: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """Stopped before each of its durable steps, and started again."""
    cut(data)
    assert accept(data, "bad-0").exit_code == 0
    calls = 0

    class KilledError(BaseException):
        pass

    def stopping(call: Callable[..., object]) -> Callable[..., object]:
        def counted(*given: object, **named: object) -> object:
            nonlocal calls
            calls += 1
            if calls == step + 1:
                raise KilledError
            return call(*given, **named)

        return counted

    with monkeypatch.context() as killed:
        killed.setattr(log_upkeep.LogUpkeep, "tick", lambda _: None)  # of another thread
        killed.setattr(past, "write_losses", stopping(losses.write_losses))
        killed.setattr(checkpoints, "write_checkpoint", stopping(checkpoints.write_checkpoint))
        with suppress(KilledError):
            txn.Broker(data).close()
    assert calls > step or step == STEPS - 1
    with txn.Broker(data) as broker:
        assert read_all(broker.bootstrap_servers, "bad") == VALUES[:20]
        assert send(plain_producer(broker.bootstrap_servers), "bad", [b"new"]) == [21]
    assert not (data / ACCEPTED_LOSSES).exists()


def test_P3_open_transactions_that_may_have_lost_something_are_aborted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = tmp_path / "data"
    process = BrokerProcess(data)
    servers = process.bootstrap_servers
    create_topic(servers, "bad")
    commit_values(transactional_producer(servers, "kept"), "bad", [b"kept"])
    producer = transactional_producer(servers, "open")
    producer.begin_transaction()
    producer.produce("bad", value=b"first")
    producer.flush(WAIT_S)
    producer.produce("bad", value=b"second")
    producer.flush(WAIT_S)
    process.kill()
    flip_bit(segment_of(data), -1)
    assert accept(data, "bad-0").exit_code == 0
    process.restart()
    assert process.bootstrap_servers == servers
    with pytest.raises(KafkaException, match="INVALID_PRODUCER_ID_MAPPING"):
        producer.commit_transaction(WAIT_S)
    assert read_all(servers, "bad") == [b"kept"]
    commit_values(transactional_producer(servers, "open"), "bad", [b"again"])
    assert read_all(servers, "bad") == [b"kept", b"again"]
    process.kill()
