"""`txn explain` and `txn transactions` as the person on call meets them. They run on brokers at
work, with real clients that wait, die and are fenced, and on the files of a stopped one."""

import io
import json
import random
import shlex
import shutil
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

import txn
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
from support.late_batch import let_hang, let_in_late
from support.wire_client import RawConnection, request
from txn import _core
from txn.cluster import brokers, routing, source
from txn.coordinator.transaction.records import encode_key, encode_value
from txn.coordinator.transaction.states import LastOffset, Txn, TxnState
from txn.explain import abort
from txn.explain.directory import DirectorySource
from txn.inspect import segments, texts
from txn.storage.directory import LOCK
from txn.wire.encoding import encode
from txn.wire.kio import load_response_schema

PRODUCE, INIT_PRODUCER_ID = 0, 22


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
    shutil.copytree(scene.data, copied)
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
    shutil.copytree(scene.data, copied)
    code, out, _ = run_txn("transactions", "describe", "pay-4", "--data", copied, "--json")
    assert (code, json.loads(out)["timeline"]) == (0, alive)
    code, out, _ = run_txn("transactions", "list", "--data", copied, "--json")
    assert [each["transactional_id"] for each in json.loads(out)][:2] == ["pay-3", "pay-4"]


# ---------------------------------------------------------------- after a power failure


def held_by_pay(data: Path) -> dict[str, Any]:
    """The transaction that holds orders-0 back, by the files."""
    code, out, err = run_txn("explain", "orders-0", "--data", data, "--json")
    assert code == 0, err
    held: dict[str, Any] = json.loads(out)[0]["held_by"]
    return held


def newest_record(data: Path, transactional_id: str) -> tuple[Path, Txn]:
    """The file and the content of the newest record of an id."""
    record = DirectorySource(data).history(transactional_id)[-1]
    assert record.txn is not None
    return data / f"__transaction_state-{record.partition}" / f"{0:020}.log", record.txn


def append(path: Path, key: bytes, value: bytes) -> None:
    """Append a record to a log whose broker is gone."""
    batches = list(segments.walk(path))
    assert isinstance(batches[-1], segments.SegmentBatch)
    record = bytearray(_core.encode_batch([(key, value)], 1_000, -1, -1, -1, False))
    struct.pack_into(">q", record, 0, batches[-1].last_offset + 1)
    path.write_bytes(path.read_bytes() + record)


def left_by_power(data: Path, copied: Path) -> Path:
    """A copy that the next start takes for one of a machine that went down."""
    shutil.copytree(data, copied)
    (copied / LOCK).write_text("another boot")
    return copied


@pytest.mark.parametrize("lost", [0, 1])
def test_P3_a_prepared_commit_without_its_records_is_told_as_the_abort_that_the_start_makes_of_it(
    tmp_path: Path, lost: int
) -> None:
    """It was told as decided (commit). A start that finds all of its records commits it."""
    data = tmp_path / "data"
    with txn.Broker(data, durability="commit") as broker:
        create_topic(broker.bootstrap_servers, "orders")
        producer = transactional_producer(broker.bootstrap_servers, "pay")
        producer.begin_transaction()
        send(producer, "orders", [b"a", b"b"])
        copied = left_by_power(data, tmp_path / "copied")
    path, opened = newest_record(copied, "pay")
    topic_id = texts.read_topic_id((copied / "orders-0" / "partition.metadata").read_text())
    prepare = opened._replace(
        state=TxnState.PREPARE_COMMIT,
        last_offsets=(LastOffset(topic_id.bytes, 0, 0, 1 + lost),),
    )
    append(path, encode_key("pay"), encode_value(prepare))
    told = held_by_pay(copied)["ended_by"]
    if lost:
        assert told == (
            "the next start: power took records of this commit, which was never answered: it is "
            "aborted"
        )
    else:
        assert told == "the next start: it is decided (commit), and its markers are written then"
    with txn.Broker(copied, durability="commit") as broker:
        shown = read_all(broker.bootstrap_servers, "orders")
    assert shown == ([] if lost else [b"a", b"b"])


def test_P2_a_marker_that_power_took_is_told_as_written_again(tmp_path: Path) -> None:
    """It was told as lost for good."""
    data = tmp_path / "data"
    with txn.Broker(data, durability="commit") as broker:
        create_topic(broker.bootstrap_servers, "orders")
        commit_values(transactional_producer(broker.bootstrap_servers, "pay"), "orders", [b"a"])
        copied = left_by_power(data, tmp_path / "copied")
    path = copied / "orders-0" / f"{0:020}.log"
    *_, marker = segments.walk(path)
    assert isinstance(marker, segments.SegmentBatch)
    assert marker.is_control
    path.write_bytes(path.read_bytes()[: marker.position])
    assert held_by_pay(copied)["ended_by"] == (
        "the next start: it is committed, and power took its marker, which is written again"
    )
    with txn.Broker(copied, durability="commit") as broker:
        assert read_all(broker.bootstrap_servers, "orders") == [b"a"]


# ---------------------------------------------------------------- ends


def test_a_partition_that_lost_its_log_is_told_as_empty(scene: Scene, tmp_path: Path) -> None:
    """The transaction's open parts on other partitions ended in a traceback."""
    data = shutil.copytree(scene.data, tmp_path / "copy")
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


def test_an_abort_by_id_goes_on_where_its_timeout_is_no_longer_allowed(tmp_path: Path) -> None:
    """`explain` advised it, and it ended with INVALID_TRANSACTION_TIMEOUT."""
    with txn.Broker(tmp_path / "data", durability="process") as broker:
        create_topic(broker.bootstrap_servers, "orders")
        producer = transactional_producer(broker.bootstrap_servers, "pay-5")
        producer.begin_transaction()
        send(producer, "orders", [b"1"])
        shutil.copytree(tmp_path / "data", tmp_path / "left")  # as a kill leaves it
    limits = {"transaction.max.timeout.ms": "10000"}
    with txn.Broker(tmp_path / "left", properties=limits) as broker:
        code, out, err = run_txn(*ABORT_PAY_5, broker.bootstrap_servers, "--yes")
        assert (code, err) == (0, "")
        assert "aborted. 'pay-5' now has producer" in out


class Meanwhile(Terminal):
    """Somebody who says yes late: something happens while the question stands."""

    def __init__(self, happens: Callable[[], object]) -> None:
        super().__init__("y\n")
        self._happens = happens

    def readline(self, _limit: int = -1) -> str:
        self._happens()
        return super().readline()


@pytest.fixture
def client() -> Iterator[tuple[str, Producer]]:
    """A broker, and a client with an open transaction of 'pay-5' on orders-0."""
    with txn.Broker() as broker:
        create_topic(broker.bootstrap_servers, "orders")
        producer = transactional_producer(broker.bootstrap_servers, "pay-5")
        producer.begin_transaction()
        send(producer, "orders", [b"1"])
        yield broker.bootstrap_servers, producer


ABORT_PAY_5 = ("transactions", "abort", "--transactional-id", "pay-5", "--bootstrap")


def test_a_commit_while_an_abort_is_asked_about_is_told_and_fences_nobody(
    client: tuple[str, Producer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command fenced the producer, and said \"aborted\" of a committed transaction."""
    servers, producer = client
    monkeypatch.setattr("sys.stdin", Meanwhile(lambda: producer.commit_transaction(WAIT_S)))
    code, out, err = run_txn(*ABORT_PAY_5, servers)
    assert (code, "aborted." in out) == (1, False)
    assert err == (
        "Abort it? [y/N]: txn: nothing was aborted. 'pay-5' has no open transaction: "
        "CompleteCommit: it ended after it was shown\n"
    )
    commit_values(producer, "orders", [b"2"])
    assert read_all(servers, "orders") == [b"1", b"2"]


def test_the_next_transaction_is_not_aborted_in_place_of_the_one_that_was_shown(
    client: tuple[str, Producer], monkeypatch: pytest.MonkeyPatch
) -> None:
    servers, producer = client

    def goes_on() -> None:
        producer.commit_transaction(WAIT_S)
        producer.begin_transaction()
        send(producer, "orders", [b"2"])

    monkeypatch.setattr("sys.stdin", Meanwhile(goes_on))
    code, _, err = run_txn(*ABORT_PAY_5, servers)
    assert code == 1
    told = (
        "Abort it? [y/N]: txn: nothing was aborted: the transaction ended after it was shown, and"
    )
    assert err.startswith(told)
    assert "That is the open transaction of 'pay-5' (producer " in err
    producer.commit_transaction(WAIT_S)
    assert read_all(servers, "orders") == [b"1", b"2"]


def test_a_commit_that_overtakes_the_abort_is_not_told_as_aborted(
    client: tuple[str, Producer], monkeypatch: pytest.MonkeyPatch
) -> None:
    servers, producer = client
    asked: list[str] = []
    coordinator = source.ClusterSource.coordinator

    def overtaken(self: source.ClusterSource, name: str) -> brokers.RemoteBroker:
        asked.append(name)
        if len(asked) == 3:  # the plan, the second plan, the abort
            producer.commit_transaction(WAIT_S)
        return coordinator(self, name)

    monkeypatch.setattr(source.ClusterSource, "coordinator", overtaken)
    code, out, err = run_txn(*ABORT_PAY_5, servers, "--yes")
    assert (code, "aborted." in out) == (1, False)
    assert err.startswith("txn: the transaction was committed before the abort came. 'pay-5' now")
    assert read_all(servers, "orders") == [b"1"]


def test_what_hung_and_ended_while_it_is_asked_about_gets_no_second_marker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with txn.Broker() as broker:
        servers = broker.bootstrap_servers
        create_topic(servers, "orders")
        offset = let_hang(broker, "orders", 1_000, b"late")
        place = ("--topic-partition", "orders-0", "--start-offset", offset)
        end = ("transactions", "abort", *place, "--bootstrap", servers)
        monkeypatch.setattr("sys.stdin", Meanwhile(lambda: run_txn(*end, "--yes")))
        code, _, err = run_txn(*end)
        assert (code, "no transaction on orders-0 is open since offset" in err) == (1, True)
        assert ends(servers, "orders") == (offset + 2, offset + 2)


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


# ---------------------------------------------------------------- usage


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("explain", "orders", "--bootstrap", "127.0.0.1:1"), "node 127.0.0.1:1 cannot be reached"),
        (("explain", "orders", "--bootstrap", "nowhere"), "--bootstrap takes HOST:PORT"),
        (("explain", "orders", "--data", "/nonexistent"), "is no data directory"),
        (("explain", "a", "--data", "/", "--bootstrap", "a:1"), "give one of them"),
        (("transactions", "abort"), "in one way: --transactional-id ID, or"),
        (
            ("transactions", "abort", "--topic-partition", "orders-0"),
            "in one way: --transactional-id ID, or",
        ),
        (("transactions", "list", "--longer-than", "soon"), "a duration is a number"),
    ],
)
def test_wrong_usage_and_nobody_to_ask_end_with_2_and_say_what_to_do(
    arguments: tuple[str, ...], said: str
) -> None:
    code, out, err = run_txn(*arguments)
    assert (code, out, said in err, err.count("\n")) == (2, "", True, 1)


def test_what_is_unknown_is_answered_with_what_there_is(scene: Scene) -> None:
    code, _, err = run_txn("explain", "order", "--bootstrap", scene.servers)
    assert (code, "did you mean orders" in err) == (2, True)
    code, _, err = run_txn("transactions", "describe", "pay", "--bootstrap", scene.servers)
    assert (code, "no coordinator knows transactional id 'pay'" in err) == (2, True)


def test_what_listens_there_and_is_no_broker_is_told_from_one() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        def answer() -> None:
            connection, _ = listener.accept()
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            connection.close()

        threading.Thread(target=answer).start()
        code, _, err = run_txn("explain", "orders", "--bootstrap", f"127.0.0.1:{port}")
    assert (code, f"127.0.0.1:{port} does not answer like a Kafka broker" in err) == (2, True)


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


@pytest.mark.parametrize(
    ("first", "told"),
    [
        (b"", "If its listener wants TLS or SASL, set security.protocol"),
        (b"\x15\x03\x03\0\x02\x02\x46", "speaks TLS on this port; set security.protocol"),
    ],
)
def test_a_listener_with_tls_or_that_hangs_up_is_told_with_the_setting(
    first: bytes, told: str
) -> None:
    with answering(lambda _: first) as port:
        code, out, err = run_txn("transactions", "list", "--bootstrap", f"127.0.0.1:{port}")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert told in err


def test_a_listener_that_hangs_up_behind_its_versions_may_want_sasl() -> None:
    def answer(asked: bytes) -> bytes:
        (key,) = struct.unpack_from(">h", asked, 4)
        return versions_alone(asked) if key == 18 else b""

    with answering(answer) as port:
        code, out, err = run_txn("transactions", "list", "--bootstrap", f"127.0.0.1:{port}")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "If its listener wants SASL" in err


METADATA_ALONE = {"api_key": 3, "min_version": 0, "max_version": 9}
UNSUPPORTED_VERSION = 35


def versions_alone(asked: bytes) -> bytes:
    """The ApiVersions answer of a broker that knows version 0 of it, and Metadata."""
    (version,) = struct.unpack_from(">h", asked, 6)
    fields = {"error_code": UNSUPPORTED_VERSION if version else 0, "api_keys": [METADATA_ALONE]}
    body = encode(load_response_schema(18, 0), fields)
    return struct.pack(">i", 4 + len(body)) + asked[8:12] + body


def test_a_broker_that_is_too_old_is_told_from_one_that_is_not() -> None:
    def answer(asked: bytes) -> bytes:
        (key,) = struct.unpack_from(">h", asked, 4)
        if key == 18:
            return versions_alone(asked)
        version, metadata = 9, {"controller_id": 1, "topics": [], "brokers": [], "cluster_id": None}
        metadata["brokers"] = [{"node_id": 1, "host": "127.0.0.1", "port": port, "rack": None}]
        body = b"\0" + encode(load_response_schema(3, version), metadata)
        return struct.pack(">i", 4 + len(body)) + asked[8:12] + body

    with answering(answer) as port:
        code, out, err = run_txn("transactions", "list", "--bootstrap", f"127.0.0.1:{port}")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "this client needs ListTransactions in version 0 to 1" in err
    assert "use a broker of Kafka 3.0 or newer" in err


@contextmanager
def answering(answer: Callable[[bytes], bytes]) -> Iterator[int]:
    """The port of a listener that answers frames; it closes the connection where that is empty."""

    def serve(connection: socket.socket) -> None:
        with connection:
            while asked := connection.recv(1 << 16):
                if not (told := answer(asked)):
                    return
                connection.sendall(told)

    def accept() -> None:
        with suppress(OSError):
            while True:
                serve(listener.accept()[0])

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=accept)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
    thread.join()


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


# ---------------------------------------------------------------- what hangs


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
