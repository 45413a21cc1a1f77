"""`txn log`, `txn explain --data`: directories in which anything may lie.

The story: a sparse file of a tebibyte was read byte by byte, and a FIFO was waited for. One file
that could not be read ended it all, and names gave orders to the terminal.
"""

import json
import os
import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import txn
from support.clients import read_all
from support.command_line import run_txn

SEGMENT = f"{0:020}"
TEBIBYTE = 1 << 40


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with one partition, `orders-0`, stopped cleanly."""
    root = tmp_path_factory.mktemp("made") / "data"
    with (
        txn.Broker(root, num_partitions=1) as broker,
        txn.Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id="a") as producer,
    ):
        for value in (b"1", b"2"):
            with producer.transaction() as t:
                t.produce("orders", value)
    return root


@pytest.fixture
def data(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path / "data")
    return tmp_path / "data"


def fifo(path: Path) -> None:
    os.mkfifo(path)


def socket_at(path: Path) -> None:
    here = os.getcwd()
    os.chdir(path.parent)  # the name of a socket has to be short
    try:
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(path.name)
    finally:
        os.chdir(here)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def directory(path: Path) -> None:
    path.mkdir()


def sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, TEBIBYTE)


def loop(path: Path) -> None:
    path.symlink_to(path.name)


def dangling(path: Path) -> None:
    path.symlink_to("nowhere")


FILES = (
    *(f"orders-0/{SEGMENT}{suffix}" for suffix in (".log", ".index", ".timeindex", ".txnindex")),
    *("orders-0/leader-epoch-checkpoint", "orders-0/partition.metadata"),
    *("orders-0/00000000000000000004.snapshot", "__cluster_metadata-0/quorum-state"),
    *("meta.properties", ".kafka_cleanshutdown", "recovery-point-offset-checkpoint"),
    *("log-start-offset-checkpoint", "cleaner-offset-checkpoint"),
)
STRANGE = (fifo, socket_at, device, directory, sparse)
UNREADABLE = (loop, dangling)


def put(data: Path, name: str, make: Callable[[Path], None]) -> Path:
    path = data / name
    path.unlink(missing_ok=True)
    make(path)
    return path


def findings(*arguments: object) -> tuple[int, dict[str, list[dict[str, str]]]]:
    code, out, _ = run_txn("log", "verify", "--json", *arguments)
    return code, json.loads(out)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("make", STRANGE)
@pytest.mark.parametrize("name", FILES)
def test_P9_a_file_that_cannot_be_one_is_found_by_name(
    data: Path, name: str, make: Callable[[Path], None]
) -> None:
    path = put(data, name, make)
    code, outcome = findings(data)
    assert code == 1
    assert str(path) in {finding["file"] for finding in outcome["findings"]}


@pytest.mark.parametrize("make", UNREADABLE)
@pytest.mark.parametrize("name", FILES)
def test_a_file_that_cannot_be_read_is_named_and_the_others_are_looked_at(
    data: Path, name: str, make: Callable[[Path], None]
) -> None:
    whole = findings(data)[1]
    path = put(data, name, make)
    code, outcome = findings(data)
    assert code == 2
    assert str(path) in {unread["file"] for unread in outcome["unread"]}
    assert outcome["partitions"] == whole["partitions"]


@pytest.mark.parametrize("make", [fifo, socket_at, device, sparse, loop, dangling])
def test_a_strange_file_in_place_of_a_partition_is_told(
    data: Path, make: Callable[[Path], None]
) -> None:
    path = put(data, "bills-0", make)
    code, outcome = findings(data)
    assert code == 1
    assert [finding["file"] for finding in outcome["findings"]] == [str(path)]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("make", [*STRANGE, *UNREADABLE])
@pytest.mark.parametrize("name", FILES)
def test_a_dump_names_what_it_cannot_read_and_goes_on(
    data: Path, name: str, make: Callable[[Path], None]
) -> None:
    path = put(data, name, make)
    code, out, err = run_txn("log", "dump", "--json", data)
    entries = [json.loads(line) for line in out.splitlines()]
    told = [entry for entry in entries if entry["file"] == str(path) and entry.get("fault")]
    assert bool(told) or str(path) in err
    assert len({entry["file"] for entry in entries}) > 5
    assert code == (1 if told else 2 if make is loop else code)
    assert code != 0 or make is dangling


@pytest.mark.timeout(60)
@pytest.mark.parametrize("make", [fifo, device, sparse, loop])
@pytest.mark.parametrize(
    "name", [f"orders-0/{SEGMENT}.log", "orders-0/00000000000000000004.snapshot"]
)
def test_explain_neither_waits_for_nor_swallows_a_strange_file(
    data: Path, name: str, make: Callable[[Path], None]
) -> None:
    put(data, name, make)
    code, out, err = run_txn("explain", "orders", "--data", data)
    assert code in (0, 2)
    assert bool(out) != bool("txn: " in err)
    assert "Traceback" not in err


READ_WHOLE_AT_A_START = (
    *("orders-0/partition.metadata", "__cluster_metadata-0/partition.metadata", "meta.properties"),
    *("recovery-point-offset-checkpoint", "replication-offset-checkpoint"),
    *("log-start-offset-checkpoint", "cleaner-offset-checkpoint", "refused-partitions.json"),
    *("__cluster_metadata-0/quorum-state", ".lock", ".kafka_cleanshutdown"),
)
NEEDED_AT_A_START = ("meta.properties", "refused-partitions.json")


@pytest.mark.parametrize("name", READ_WHOLE_AT_A_START)
def test_a_start_reads_no_sparse_file_whole(
    data: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It ended in a MemoryError, or took the memory; one partition's file cost all of them."""
    path = put(data, name, sparse)
    if name in NEEDED_AT_A_START:
        with pytest.raises(txn.TxnError, match=f"{path.name}.*{TEBIBYTE} bytes"):
            txn.Broker(data)
        return
    with txn.Broker(data) as broker:
        assert read_all(broker.bootstrap_servers, "orders") == [b"1", b"2"]
    is_left_out = "checkpoint" in name or "metadata" in path.name
    assert any(str(path) in line for line in caplog.messages) == is_left_out


DERIVED_FROM_BATCHES = (
    *(f"orders-0/{SEGMENT}{suffix}" for suffix in (".index", ".timeindex", ".txnindex")),
    *("orders-0/leader-epoch-checkpoint", "orders-0/00000000000000000004.snapshot"),
    "orders-0/txnindex-checkpoint",
)


@pytest.mark.parametrize("name", DERIVED_FROM_BATCHES)
def test_a_start_derives_anew_what_is_too_large_to_be_read(data: Path, name: str) -> None:
    """The start read it whole, whatever its size: the partition failed for want of memory."""
    put(data, name, sparse)
    with txn.Broker(data) as broker:
        assert read_all(broker.bootstrap_servers, "orders") == [b"1", b"2"]


def test_a_quorum_state_of_brackets_alone_is_found(data: Path) -> None:
    (data / "__cluster_metadata-0" / "quorum-state").write_text("[" * 500_000)
    assert findings(data)[0] == 1


# ---------------------------------------------------------------- what a terminal gets

ORDERS = "\x1b[31mred\x9b\u202eback\r\nnext [bold]"
"""Characters that a terminal would obey: escape sequences, of one byte too, a turn of direction,
line ends.
"""


def obeyed(text: str) -> set[str]:
    """The characters in an output that are for terminals, and no line ends of its own."""
    return {each for each in text if not each.isprintable() and each != "\n"}


@pytest.fixture(scope="module")
def naughty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """A directory whose texts give orders, and the address of the broker at work on it."""
    root = tmp_path_factory.mktemp(ORDERS.replace("\n", "")) / "data"
    with (
        txn.Broker(root, num_partitions=1) as broker,
        txn.Producer(
            bootstrap_servers=broker.bootstrap_servers,
            transactional_id=ORDERS,
            client_id=ORDERS,
        ) as producer,
        txn.Producer(
            bootstrap_servers=broker.bootstrap_servers, transactional_id=f"open {ORDERS}"
        ) as other,
    ):
        with producer.transaction() as t:
            t.produce("orders", ORDERS, key=ORDERS, headers=[(ORDERS, ORDERS.encode())])
        block = other.transaction()
        block.__enter__().produce("orders", b"x")
        other._handle.wait(30)
        yield root, broker.bootstrap_servers
        block.__exit__(None, None, None)


@pytest.mark.parametrize(
    "command",
    [
        *("explain orders", "transactions list", "transactions hanging", "log verify PATH"),
        *("transactions describe ID", "log dump --deep PATH", "transactions abort ID --dry-run"),
        *("transactions describe NOBODY", "explain NOBODY"),
    ],
)
@pytest.mark.parametrize("from_files", [False, True])
def test_no_command_prints_what_a_terminal_would_obey(
    naughty: tuple[Path, str], command: str, from_files: bool
) -> None:
    root, servers = naughty
    words: list[object] = []
    named: dict[str, list[object]]
    for word in command.split():
        ids = ["--transactional-id"] if "abort" in command else []
        named = {"PATH": [root], "ID": [*ids, f"open {ORDERS}"], "NOBODY": [ORDERS]}
        words += named.get(word, [word])
    if "log" not in command:
        words += ["--data", root] if from_files else ["--bootstrap", servers]
    _, out, err = run_txn(*words)
    assert out + err
    assert obeyed(out) == set()
    assert obeyed(err) == set()


def test_a_dump_of_hostile_texts_prints_none_of_them_as_they_are(
    data: Path,
) -> None:
    (data / "meta.properties").write_text(f"version=1\n{ORDERS[:-10]}=1\n")
    (data / "recovery-point-offset-checkpoint").write_text(f"0\n1\n{ORDERS[:10]} 0 1\n")
    (data / "orders-0" / "leader-epoch-checkpoint").write_text(f"{ORDERS}\n")
    (data / f"{ORDERS}-delete").mkdir()
    for words in (["log", "dump", data], ["log", "verify", data]):
        _, out, err = run_txn(*words)
        assert out
        assert obeyed(out + err) == set()
    assert findings(data)[0] == 1  # and its JSON is JSON
