"""An operator's abort, and everything that the owner of the transaction then reads about it."""

import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import txn
from support.at_work import copy_at_work
from support.clients import create_topic, send, transactional_producer
from support.command_line import run_txn
from txn.explain import abort
from txn.wire.transaction_descriptions import ABORT_CLIENT_ID

ABORT = ("transactions", "abort", "--transactional-id", "live-1")


@pytest.fixture
def servers() -> Iterator[str]:
    with txn.Broker() as broker:
        create_topic(broker.bootstrap_servers, "orders")
        yield broker.bootstrap_servers


def await_open(servers: str) -> None:
    """Return once the coordinator has the transaction."""
    ongoing = ("transactions", "list", "--state", "Ongoing", "--json", "--bootstrap", servers)
    while json.loads(run_txn(*ongoing)[1]) == []:
        pass


def test_a_live_producer_reads_that_an_operator_may_have_aborted_its_transaction(
    servers: str,
) -> None:
    """Its message knew of another instance alone, so a program ended and nobody had the work."""
    settings = {"bootstrap.servers": servers, "transactional.id": "live-1"}
    with txn.Producer(settings) as producer:
        with pytest.raises(txn.FencedError) as fenced, producer.transaction() as block:
            block.produce("orders", b"1")
            await_open(servers)
            code, out, err = run_txn(*ABORT, "--yes", "--bootstrap", servers)
            assert (code, err) == (0, "")
        assert fenced.value.action is txn.Action.GIVE_UP
        assert "or an operator aborted its transaction" in fenced.value.message
    assert "a program of txn ends and has to be started again" in out


def test_the_command_that_aborted_is_the_last_client_of_the_id(servers: str) -> None:
    """It was `txn-explain`, which aborts nothing."""
    settings = {"bootstrap.servers": servers, "transactional.id": "live-1"}
    producer = txn.Producer(settings)
    with producer, pytest.raises(txn.FencedError), producer.transaction() as block:
        block.produce("orders", b"1")
        await_open(servers)
        run_txn(*ABORT, "--yes", "--bootstrap", servers)
    described = ("transactions", "describe", "live-1", "--json", "--bootstrap", servers)
    client = json.loads(run_txn(*described)[1])["client"]
    assert (client["client_id"], client["request"]) == (ABORT_CLIENT_ID, "InitProducerId")


def test_an_abort_whose_marker_cannot_be_written_names_the_line_of_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It said "the broker answers CONCURRENT_TRANSACTIONS", though the abort was decided."""
    with txn.Broker(tmp_path / "data", durability="process") as broker:
        create_topic(broker.bootstrap_servers, "orders")
        producer = transactional_producer(broker.bootstrap_servers, "live-1")
        producer.begin_transaction()
        for _ in range(3):
            send(producer, "orders", [b"1" * 100])
        copy_at_work(tmp_path / "data", tmp_path / "left")  # as a kill leaves it
    log = tmp_path / "left" / "orders-0" / f"{0:020}.log"
    content = bytearray(log.read_bytes())
    content[100] ^= 0xFF
    log.write_bytes(content)
    monkeypatch.setattr(abort, "RETRY_S", 0)
    with txn.Broker(tmp_path / "left", durability="process") as broker:
        code, _, err = run_txn(*ABORT, "--yes", "--bootstrap", broker.bootstrap_servers)
    assert (code, err.count("\n")) == (1, 1)
    assert "may be decided, and its markers cannot be written yet" in err
    assert "`txn.end_delayed`" in err
    assert "`txn docs damage`" in err
    assert "txn.end_delayed" in {each.split()[0] for each in caplog.messages}


@pytest.mark.parametrize(
    "words",
    [
        ("transactions", "abort"),
        ("topics", "delete"),
        ("groups", "delete"),
        ("groups", "reset-offsets"),
        ("topics", "delete-records"),
    ],
)
def test_the_help_of_a_command_that_asks_has_the_exit_code_without_a_terminal(
    words: tuple[str, ...],
) -> None:
    _, out, _ = run_txn(*words, "-h")
    codes = " ".join(out.partition("Exit codes:")[2].split())
    assert "no terminal to confirm at" in codes.partition("2 wrong usage")[2]


def test_an_abort_that_nobody_can_confirm_ends_as_its_help_says(
    servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    producer = transactional_producer(servers, "live-1")
    producer.begin_transaction()
    send(producer, "orders", [b"1"])
    code, _, err = run_txn(*ABORT, "--bootstrap", servers)
    assert (code, "nobody can confirm it" in err) == (2, True)
    producer.commit_transaction()
