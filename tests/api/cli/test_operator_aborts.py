"""An operator's abort, and everything that the owner of the transaction then reads about it."""

import json
from collections.abc import Iterator

import pytest

import txn
from support.clients import create_topic
from support.command_line import run_txn
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
    with txn.Producer(settings) as producer:
        with pytest.raises(txn.FencedError), producer.transaction() as block:
            block.produce("orders", b"1")
            await_open(servers)
            run_txn(*ABORT, "--yes", "--bootstrap", servers)
    described = ("transactions", "describe", "live-1", "--json", "--bootstrap", servers)
    client = json.loads(run_txn(*described)[1])["client"]
    assert (client["client_id"], client["request"]) == (ABORT_CLIENT_ID, "InitProducerId")
