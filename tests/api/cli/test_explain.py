"""`txn explain` and `txn transactions` as the person on call meets them. They run on brokers at
work, with real clients that wait and die, and on the files of a stopped one."""

import io
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

import txn
from support.at_work import copy_at_work
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
from support.command_line import Terminal, run_txn
from support.entities import entity_builder
from support.wire_client import RawConnection, request
from txn.cluster import brokers, routing
from txn.explain import abort


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator["Scene"]:
    """A broker with an open transaction that others wait behind, and a committed one."""
    data = tmp_path_factory.mktemp("explain") / "data"
    with txn.Broker(data, durability="process") as broker:
        yield Scene(broker.bootstrap_servers, data)


class Scene:
    """`pay-3` holds orders-0 back since offset 1; three plain records and a commit wait there."""

    def __init__(self, servers: str, data: Path) -> None:
        self.servers, self.data = servers, data
        create_topic(servers, "orders", 2)
        self.plain = plain_producer(servers)
        send(self.plain, "orders", [b"before"])
        self.open = transactional_producer(servers, "pay-3", client_id="billing")
        self.open.begin_transaction()
        send(self.open, "orders", [b"a", b"b"])
        send(self.plain, "orders", [b"x", b"y", b"z"])
        self.other = transactional_producer(servers, "pay-4")
        commit_values(self.other, "orders", [b"1"])


# ---------------------------------------------------------------- a broker at work


def test_explain_names_who_holds_readers_back_and_what_will_end_it(scene: Scene) -> None:
    code, out, _ = run_txn("explain", "orders-0", "--bootstrap", scene.servers, "--json")
    (told,) = json.loads(out)
    held = told["held_by"]
    owner = held["owner"]
    assert code == 0
    assert (told["last_stable_offset"], told["end_offset"]) == (1, 8)
    assert (held["standing"], held["first_offset"]) == ("running", 1)
    assert (owner["transactional_id"], owner["partitions"]) == ("pay-3", ["orders-0"])
    assert (owner["client"]["client_id"], owner["client"]["client_host"]) == (
        "billing",
        "127.0.0.1",
    )
    assert owner["client"]["request"] == "AddPartitionsToTxn"
    assert owner["start_ms"] <= owner["client"]["seen_ms"]
    assert held["ends_ms"] == owner["deadline_ms"] == owner["start_ms"] + owner["timeout_ms"]
    assert told["waiting"] == {
        "offsets": 7,
        "records": 6,
        "own": 2,
        "plain": 3,
        "decided": 1,
        "others_open": 0,
        "is_whole": True,
    }
    assert [each["kind"] for each in told["timeline"]["events"]] == ["producer", "records", "open"]


def test_explain_says_it_in_words(scene: Scene) -> None:
    code, out, _ = run_txn("explain", "orders", "--bootstrap", scene.servers)
    assert code == 0
    lines = out.splitlines()
    assert lines[0] == ("orders-0: read_committed readers wait at offset 1 (the log ends at 8)")
    assert lines[1].startswith("  held by     transactional id 'pay-3' (producer ")
    assert lines[4].startswith("  client      'billing' from 127.0.0.1, AddPartitionsToTxn ")
    assert lines[5] == (
        "  waiting     6 records in 7 offsets: 2 of this transaction, 1 of transactions that have "
        "ended, 3 outside of transactions"
    )
    assert f"txn transactions abort --transactional-id pay-3 --bootstrap {scene.servers}" in out
    assert lines[-1] == (
        "orders-1: no transaction holds readers back; read_committed reads to the end, offset 0"
    )


def test_explain_names_the_transactions_that_hold_after_the_first(scene: Scene) -> None:
    """They were "2 mores"."""
    create_topic(scene.servers, "queued")
    queued = [transactional_producer(scene.servers, f"queued-{number}") for number in range(3)]
    for producer in queued:
        producer.begin_transaction()
        send(producer, "queued", [b"1"])
    _, out, _ = run_txn("explain", "queued-0", "--bootstrap", scene.servers)
    for producer in queued:
        producer.abort_transaction(WAIT_S)
    (then,) = [line for line in out.splitlines() if line.startswith("  after that")]
    assert then == (
        "  after that  2 more open here: transactional id 'queued-1' since offset 1, "
        "transactional id 'queued-2' since offset 2"
    )


def test_the_life_of_a_transaction_is_told_with_offsets(scene: Scene) -> None:
    code, out, _ = run_txn("transactions", "describe", "pay-4", "--bootstrap", scene.servers)
    timeline = out[out.index("  timeline") :].splitlines()[1:]
    told = [line.split(" s  ")[1] for line in timeline]
    log = told[0].partition("[")[2].split()[0]
    assert code == 0
    assert told == [
        f"InitProducerId: producer {_producer_id(out)}, epoch 0  [{log} offset 0]",
        "1 record  [orders-0 offset 6]",
        f"begun, with orders-0  [{log} offset 1]",
        f"decided to commit: producer {_producer_id(out)}, epoch 0  [{log} offset 2]",
        "commit marker  [orders-0 offset 7]",
        f"committed, every partition has its marker: producer {_producer_id(out)}, epoch 0  "
        f"[{log} offset 3]",
    ]


def _producer_id(out: str) -> str:
    (line,) = [line for line in out.splitlines() if line.startswith("  producer ")]
    return line.split()[1].rstrip(",")


def test_transactions_are_listed_with_what_filters_ask(scene: Scene) -> None:
    def listed(*filters: str) -> list[str]:
        code, out, _ = run_txn(
            "transactions", "list", *filters, "--json", "--bootstrap", scene.servers
        )
        assert code == 0
        return [each["transactional_id"] for each in json.loads(out)]

    assert listed()[:2] == ["pay-3", "pay-4"]
    assert listed("--state", "Ongoing") == ["pay-3"]
    assert listed("--state", "ongoing") == ["pay-3"]
    assert listed("--state", "EMPTY", "--state", "oNgOiNg") == ["pay-3"]
    assert listed("--longer-than", "1ms") == ["pay-3"]
    assert listed("--longer-than", "1h") == []
    assert listed("--prefix", "pay-4") == ["pay-4"]


def test_nothing_hangs_while_clients_are_at_work(scene: Scene) -> None:
    code, out, _ = run_txn("transactions", "hanging", "--bootstrap", scene.servers)
    assert (code, out.startswith("nothing hangs on ")) == (0, True)


def test_what_its_coordinator_knows_is_not_aborted_past_it(scene: Scene) -> None:
    """One marker would tear it: its other partitions could still be committed."""
    code, _, err = run_txn(
        *("transactions", "abort", "--topic-partition", "orders-0", "--start-offset", 1),
        *("--yes", "--bootstrap", scene.servers),
    )
    assert code == 1
    assert f"abort --transactional-id pay-3 --bootstrap {scene.servers}" in err
    assert ends(scene.servers, "orders") == (1, 8)


@pytest.mark.parametrize(
    ("arguments", "expected_code", "said"),
    [
        (("--dry-run",), 0, "To be aborted: the open transaction of 'pay-3'"),
        ((), 2, "Give --yes"),
    ],
)
def test_an_abort_that_is_not_confirmed_changes_nothing(
    scene: Scene,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    expected_code: int,
    said: str,
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    code, out, err = run_txn(
        *("transactions", "abort", "--transactional-id", "pay-3"),
        *(*arguments, "--bootstrap", scene.servers),
    )
    assert (code, said in out + err) == (expected_code, True)
    assert ends(scene.servers, "orders") == (1, 8)


def test_an_abort_of_what_is_at_rest_says_so(scene: Scene) -> None:
    code, out, _ = run_txn(
        *("transactions", "abort", "--transactional-id", "pay-4"),
        *("--yes", "--bootstrap", scene.servers),
    )
    assert (code, out) == (0, "'pay-4' has no open transaction: CompleteCommit\n")


def test_other_clients_are_not_told_what_kafka_has_no_field_for(scene: Scene) -> None:
    """The protocol library, for one, takes no tagged field that it does not know."""
    wanted = entity_builder(request(65, 0))({"transactional_ids": ["pay-3"]})
    with RawConnection(scene.servers) as connection:
        (described,) = connection.call(wanted).transaction_states
    assert (described.transactional_id, described.transaction_state) == ("pay-3", "Ongoing")


def test_a_stopped_directory_tells_the_same_and_is_not_changed(
    scene: Scene, tmp_path: Path
) -> None:
    """A copy of the files at work: only the client is not in them."""
    _, out, _ = run_txn("explain", "orders", "--bootstrap", scene.servers, "--json")
    alive = json.loads(out)
    copied = tmp_path / "copied"
    copy_at_work(scene.data, copied)
    before = contents(copied)
    code, out, err = run_txn("explain", "orders", "--data", copied, "--json")
    told = json.loads(out)
    assert code == 0
    assert err.startswith("note: it was left without a clean stop")
    for differing in (alive[0], told[0]):
        for name in ("advice", "command", "ended_by"):
            del differing["held_by"][name]
        for name in ("client", "tells_client"):
            del differing["held_by"]["owner"][name]
    assert told == alive
    assert contents(copied) == before


def test_a_topic_without_records_is_known_in_a_stopped_directory(tmp_path: Path) -> None:
    """Its partitions have no files yet: the topic was called unknown."""
    data = tmp_path / "data"
    with txn.Broker(data) as broker:
        create_topic(broker.bootstrap_servers, "empty", 2)
    code, out, _ = run_txn("explain", "empty", "--data", data, "--json")
    assert code == 0
    assert [each["last_stable_offset"] for each in json.loads(out)] == [0, 0]
    (data / "meta.properties").write_text("damaged")
    code, _, err = run_txn("explain", "empty", "--data", data)
    assert (code, "there is no topic 'empty'" in err) == (2, True)


def contents(root: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_the_life_of_a_transaction_stands_in_the_files(scene: Scene, tmp_path: Path) -> None:
    _, out, _ = run_txn("transactions", "describe", "pay-4", "--bootstrap", scene.servers, "--json")
    alive = json.loads(out)["timeline"]
    copied = tmp_path / "copied"
    copy_at_work(scene.data, copied)
    code, out, _ = run_txn("transactions", "describe", "pay-4", "--data", copied, "--json")
    assert (code, json.loads(out)["timeline"]) == (0, alive)
    code, out, _ = run_txn("transactions", "list", "--data", copied, "--json")
    assert [each["transactional_id"] for each in json.loads(out)][:2] == ["pay-3", "pay-4"]


def test_a_partition_that_lost_its_log_is_told_as_empty(scene: Scene, tmp_path: Path) -> None:
    """The transaction's open parts on other partitions ended in a traceback."""
    data = copy_at_work(scene.data, tmp_path / "copy")
    (data / "orders-0" / f"{0:020}.log").unlink()
    code, out, _ = run_txn("transactions", "describe", "pay-3", "--data", data)
    assert (code, "no records of it were found in orders-0" in out) == (0, True)


def test_an_abort_by_id_fences_the_producer_and_lets_readers_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal("y\n"))
    with txn.Broker(tmp_path / "data", durability="process") as broker:
        scene = Scene(broker.bootstrap_servers, tmp_path / "data")
        abort = ("transactions", "abort", "--transactional-id", "pay-3")
        code, out, _ = run_txn(*abort, "--bootstrap", scene.servers)
        assert code == 0
        assert "\naborted. 'pay-3' now has producer" in out
        assert read_all(scene.servers, "orders") == [b"before", b"x", b"y", b"z", b"1"]
        with pytest.raises(KafkaException) as refused:
            scene.open.commit_transaction(WAIT_S)
        assert refused.value.args[0].code() == KafkaError._FENCED
        code, out, _ = run_txn("explain", "orders-0", "--bootstrap", scene.servers)
        assert (code, out.splitlines()[0]) == (
            0,
            "orders-0: no transaction holds readers back; read_committed reads to the end, "
            "offset 9",
        )


def test_P5_a_dead_client_is_explained_until_its_timeout_and_gone_after(tmp_path: Path) -> None:
    with txn.Broker(tmp_path / "data", durability="process") as broker:
        servers = broker.bootstrap_servers
        create_topic(servers, "orders")
        dead = transactional_producer(servers, "dead", transaction_timeout_ms=2_000)
        dead.begin_transaction()
        send(dead, "orders", [b"never decided"])
        _, out, _ = run_txn("explain", "orders", "--bootstrap", servers, "--json")
        (held,) = [each["held_by"] for each in json.loads(out)]
        while ends(servers, "orders")[0] == 0:
            pass
        code, out, _ = run_txn("transactions", "describe", "dead", "--bootstrap", servers, "--json")
        events = {each["kind"]: each for each in json.loads(out)["timeline"]["events"]}
        assert code == 0
        assert held["ends_ms"] == held["owner"]["start_ms"] + 2_000
        assert events["decision"]["what"].startswith("decided to abort")
        assert events["decision"]["at_ms"] >= held["ends_ms"]


def test_a_client_is_known_since_the_broker_was_started(tmp_path: Path) -> None:
    with txn.Broker(tmp_path / "data", durability="process") as broker:
        create_topic(broker.bootstrap_servers, "orders")
        producer = transactional_producer(broker.bootstrap_servers, "pay-3")
        producer.begin_transaction()
        send(producer, "orders", [b"a"])
    with txn.Broker(tmp_path / "data", durability="process") as broker:
        servers = broker.bootstrap_servers
        _, out, _ = run_txn("explain", "orders", "--bootstrap", servers)
    assert "client      not known: it has asked nothing since the broker was started" in out


def test_what_is_unknown_is_answered_with_what_there_is(scene: Scene) -> None:
    code, _, err = run_txn("explain", "order", "--bootstrap", scene.servers)
    assert (code, "did you mean orders" in err) == (2, True)
    code, _, err = run_txn("transactions", "describe", "pay", "--bootstrap", scene.servers)
    assert (code, "no coordinator knows transactional id 'pay'" in err) == (2, True)


ASKED = [
    ("explain", "orders"),
    ("transactions", "list"),
    ("transactions", "describe", "pay-3"),
    ("transactions", "hanging", "--topic", "orders"),
    ("transactions", "abort", "--transactional-id", "pay-3", "--dry-run"),
    ("transactions", "abort", "--topic-partition", "orders-0", "--start-offset", "1", "--yes"),
]


def damaged(answer: bytes, chance: random.Random) -> bytes:
    """An answer with some bytes changed, cut off, or of no meaning at all."""
    kind = chance.randrange(5)
    if kind == 0:
        return answer[: chance.randrange(len(answer) + 1)]
    if kind == 1:
        return chance.randbytes(chance.randrange(200))
    data = bytearray(answer)
    for _ in range(chance.randrange(3)):
        data[chance.randrange(len(data))] = chance.choice((0, 1, 0x7F, 0x80, 0xFE, 0xFF))
    return bytes(data)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("arguments", ASKED)
def test_a_damaged_answer_is_one_line_that_says_so_and_never_a_traceback(
    scene: Scene, arguments: tuple[str, ...], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    send, version_of = brokers.RemoteBroker._send, brokers.RemoteBroker._version

    def send_damaged(self: brokers.RemoteBroker, *request: Any) -> bytes:
        answer = send(self, *request)
        return damaged(answer, chance) if answer and chance.random() < 0.2 else answer

    def version_here(self: brokers.RemoteBroker, *request: Any) -> int:
        host, port = self._node
        if host != "127.0.0.1":  # a damaged address; names are not looked up
            self._node = "127.0.0.1", port
        return version_of(self, *request)

    monkeypatch.setattr(brokers.RemoteBroker, "_send", send_damaged)
    monkeypatch.setattr(brokers.RemoteBroker, "_version", version_here)
    monkeypatch.setattr(routing, "RETRY_S", 0)
    monkeypatch.setattr(abort, "RETRY_S", 0)
    for _ in range(20):
        code, _, err = run_txn(*arguments, "--bootstrap", scene.servers)
        assert code in {0, 1, 2}
        assert err.count("\n") <= 1


def test_of_a_transaction_whose_first_records_were_deleted_the_rest_is_told(
    tmp_path: Path,
) -> None:
    """It was asked for records below the log's start: no record was found, and none counted."""
    data = tmp_path / "data"
    with txn.Broker(data, durability="process") as broker:
        servers = broker.bootstrap_servers
        create_topic(servers, "orders")
        open_ = transactional_producer(servers, "pay-3")
        open_.begin_transaction()
        for value in (b"a", b"b", b"c", b"d"):
            send(open_, "orders", [value])
        admin = AdminClient({"bootstrap.servers": servers})
        deleted = admin.delete_records([TopicPartition("orders", 0, 2)])
        assert [each.result(WAIT_S).low_watermark for each in deleted.values()] == [2]
        told = run_txn("explain", "orders", "--bootstrap", servers)
    told_of_files = run_txn("explain", "orders", "--data", data)
    for code, out, _ in (told, told_of_files):
        assert code == 0
        assert "readers wait at offset 2 (the log ends at 4)" in out
        assert "deleted     records of it: it began at offset 0, the log at 2" in out
        assert "waiting     2 records in 2 offsets: 2 of this transaction" in out
        assert "no records of it were found" not in out


def test_names_that_a_terminal_would_obey_are_written_out(tmp_path: Path) -> None:
    with txn.Broker(tmp_path / "data", durability="process") as broker:
        servers = broker.bootstrap_servers
        transactional_producer(servers, "pay\x1b[2J\nok", client_id="a\tb")
        code, out, _ = run_txn("transactions", "list", "--bootstrap", servers)
        assert (code, out.count("\n"), "\x1b" in out) == (0, 2, False)
        assert "pay\\x1b[2J\\nok" in out
        _, _, err = run_txn("explain", "or\x1b[2Jders", "--bootstrap", servers)
        assert "\x1b" not in err


@pytest.mark.parametrize(
    "arguments",
    [
        ("explain",),
        *(("transactions", each) for each in ("list", "describe", "hanging", "abort")),
    ],
)
def test_help_has_examples_and_exit_codes(arguments: tuple[str, ...]) -> None:
    code, out, _ = run_txn(*arguments, "--help")
    assert code == 0
    assert f"  txn {' '.join(arguments)} " in out
    assert "Exit codes: 0 " in out
