"""Transactions that no coordinator knows, or that a second phase has to end."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

import txn
from support.clients import (
    commit_values,
    create_topic,
    ends,
    plain_producer,
    read_all,
    send,
    transactional_producer,
)
from support.command_line import run_txn
from support.entities import entity_builder
from support.late_batch import let_hang, let_in_late
from support.wire_client import RawConnection, request
from txn import _core

PRODUCE, INIT_PRODUCER_ID = 0, 22


def test_P9_a_directory_in_which_a_transaction_hangs_is_not_served_in_silence(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It may be a late write of an older broker, or its marker is lost."""
    data = tmp_path / "data"
    with txn.Broker(data, durability="process") as broker:
        create_topic(broker.bootstrap_servers, "orders")
        send(plain_producer(broker.bootstrap_servers), "orders", [b"before"])
    offset = let_in_late(data, "orders", 1_000, b"late")
    code, out, _ = run_txn("transactions", "hanging", "--data", data)
    assert (code, out.splitlines()[0]) == (1, f"orders-0 since offset {offset}: hanging")
    with txn.Broker(data, durability="process") as broker:
        told = [record.getMessage() for record in caplog.records]
        code, _, err = run_txn("explain", "orders", "--bootstrap", broker.bootstrap_servers)
    (damaged,) = [line for line in told if "log.damaged" in line]
    assert f"producer 1000 with epoch 0 has a transaction open since offset {offset}" in damaged
    assert "no transactional id in __transaction_state has this producer id" in damaged
    assert (code, "orders-0" in err) == (2, True)


def test_what_no_coordinator_knows_is_found_and_ended(tmp_path: Path) -> None:
    with txn.Broker(tmp_path / "data", durability="process") as broker:
        servers = broker.bootstrap_servers
        create_topic(servers, "orders")
        send(plain_producer(servers), "orders", [b"before"])
        offset = let_hang(broker, "orders", 1_000, b"late")
        send(plain_producer(servers), "orders", [b"after"])
        code, out, _ = run_txn("transactions", "hanging", "--json", "--bootstrap", servers)
        (held,) = json.loads(out)
        assert (code, held["standing"], held["first_offset"]) == (1, "hanging", offset)
        code, out, _ = run_txn("explain", "orders", "--bootstrap", servers)
        assert (code, "nothing: no transactional id uses its producer id" in out) == (1, True)
        code, out, _ = run_txn(*shlex.split(held["command"])[1:], "--yes")
        assert (code, "aborted. The marker is in orders-0" in out) == (0, True)
        assert read_all(servers, "orders") == [b"before", b"after"]
        code, _, _ = run_txn("transactions", "hanging", "--bootstrap", servers)
        assert code == 0


def test_P2_what_its_coordinator_committed_is_not_aborted_by_hand(tmp_path: Path) -> None:
    with txn.Broker(tmp_path / "data", durability="process") as broker:
        servers = broker.bootstrap_servers
        create_topic(servers, "orders")
        producer = transactional_producer(servers, "pay-3")
        commit_values(producer, "orders", [b"committed"])
        offset = let_hang(broker, "orders", 0, b"late")
        code, out, _ = run_txn("explain", "orders", "--bootstrap", servers)
        assert code == 1
        assert "'pay-3' completed it as COMMIT at 20" in out
        assert "safe to do  do not abort it" in out
        assert "txn transactions abort" not in out
        here = ("--topic-partition", "orders-0", "--start-offset", str(offset))
        end = ("transactions", "abort", *here, "--yes", "--bootstrap", servers)
        code, _, err = run_txn(*end)
        assert (code, "'pay-3' completed it as COMMIT" in err) == (1, True)
        assert "--despite-commit" in err
        assert read_all(servers, "orders") == [b"committed"]
        code, out, _ = run_txn(*end, "--despite-commit")
        assert (code, "aborted. The marker is in orders-0" in out) == (0, True)


def test_what_is_prepared_for_two_phase_commit_never_times_out_and_is_not_aborted(
    tmp_path: Path,
) -> None:
    """Its other side may have committed: an abort would tear it (KIP-939)."""
    properties = {"transaction.two.phase.commit.enable": "true"}
    with (
        txn.Broker(tmp_path / "data", durability="process", properties=properties) as broker,
        RawConnection(broker.bootstrap_servers) as connection,
    ):
        servers = broker.bootstrap_servers
        create_topic(servers, "orders")

        def ask(api_key: int, version: int, **fields: Any) -> Any:
            return connection.call(entity_builder(request(api_key, version))(fields))

        began = ask(
            INIT_PRODUCER_ID,
            6,
            transactional_id="bank",
            transaction_timeout=60_000,
            enable2_pc=True,
        )
        batch = _core.encode_batch(
            [(None, b"a")],
            1_700_000_000_000,
            began.producer_id,
            began.producer_epoch,
            0,
            is_transactional=True,
        )
        partition = {"index": 0, "records": batch}
        stored = ask(
            PRODUCE,
            12,
            transactional_id="bank",
            acks=-1,
            timeout=1_000,
            topic_data=[{"name": "orders", "partition_data": [partition]}],
        )
        assert stored.responses[0].partition_responses[0].error_code == 0
        _, out, _ = run_txn("explain", "orders", "--bootstrap", servers)
        assert "it takes part in a two-phase commit and never times out" in out
        assert "txn transactions abort" not in out
        _, out, _ = run_txn("transactions", "describe", "bank", "--bootstrap", servers)
        assert "  timeout     none (two-phase commit)" in out.splitlines()
        abort = ("transactions", "abort", "--transactional-id", "bank", "--yes")
        code, _, err = run_txn(*abort, "--bootstrap", servers)
        assert (code, "let that side decide" in err) == (1, True)
        assert ends(servers, "orders") == (0, 1)
