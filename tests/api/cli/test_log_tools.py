"""`txn log dump` and `txn log verify`, as an operator meets them: on directories that real
clients filled, stopped, damaged, or in use."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

import txn
from support.brokers import BrokerProcess
from support.clients import create_topic, plain_producer, transactional_producer
from support.compacted import compact
from support.log_directories import fill
from txn.inspect import texts
from txn.inspect.layout import CHECKPOINTS, StopState
from txn.inspect.verify import verify
from txn.storage.checkpoints import LOG_STARTS


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with some of everything, stopped cleanly."""
    path = tmp_path_factory.mktemp("log-tools") / "data"
    with txn.Broker(path) as broker:
        fill(broker.bootstrap_servers)
    return path


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "txn", "log", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
    )


def dumped(*arguments: str | Path) -> list[dict[str, Any]]:
    done = run("dump", "--json", *arguments)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def contents(root: Path) -> dict[Path, tuple[bytes, int]]:
    return {
        path: (path.read_bytes(), path.stat().st_mtime_ns)
        for path in root.rglob("*")
        if path.is_file()
    }


# ---------------------------------------------------------------- verify


def test_P9_a_directory_left_cleanly_has_no_findings_and_is_not_changed(data: Path) -> None:
    before = contents(data)
    done = run("verify", "--deep", "--json", data)
    assert (done.returncode, done.stderr) == (0, "")
    outcome = json.loads(done.stdout)
    assert (outcome["findings"], outcome["notes"]) == ([], [])
    assert outcome["state"] == "stopped cleanly"
    read = [*data.rglob("*.log"), *data.glob("__cluster_metadata-0/*.checkpoint")]
    assert outcome["bytes"] == sum(path.stat().st_size for path in read)
    assert contents(data) == before


def test_a_finding_names_file_position_and_what_to_do(data: Path) -> None:
    log = data / "lz4-0" / f"{0:020}.log"
    with flipped(log, 1000):
        done = run("verify", data)
    assert done.returncode == 1
    place, advice, summary = done.stdout.splitlines()
    assert place.startswith(f"{log} at byte 0: the batch's CRC-32C is 0x")
    assert advice.strip().startswith("restore the partition from a copy")
    assert summary.endswith("stopped cleanly: 1 finding")


@pytest.mark.parametrize("command", ["verify", "dump"])
def test_what_is_no_log_is_refused(tmp_path: Path, command: str) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    done = run(command, tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"txn: {tmp_path} holds no ")


def test_P9_a_byte_flipped_anywhere_is_found_unless_it_means_nothing(data: Path) -> None:
    """Every kind of file, any byte, any bit; and no traceback."""
    files = [path for path in data.rglob("*") if path.is_file() and path.stat().st_size]
    kinds = sorted({path.suffix or path.name for path in files})

    @given(
        file=st.sampled_from(kinds).flatmap(
            lambda kind: st.sampled_from([p for p in files if (p.suffix or p.name) == kind])
        ),
        share=st.floats(0, 1, exclude_max=True),
        bit=st.integers(0, 7),
    )
    @settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    def flip(file: Path, share: float, bit: int) -> None:
        event(file.suffix or file.name)
        before = file.read_bytes()
        position = int(share * len(before))
        with flipped(file, position, 1 << bit):
            after = file.read_bytes()
            findings = verify(data).findings
        assert findings or means_nothing(file, before, after), (file, position, bit)

    flip()


class flipped:
    """A file with a bit flipped while this is open."""

    def __init__(self, path: Path, position: int, mask: int = 0x10) -> None:
        self.path, self.position, self.mask = path, position, mask

    def __enter__(self) -> None:
        self._flip()

    def __exit__(self, *_error: object) -> None:
        self._flip()

    def _flip(self) -> None:
        with self.path.open("r+b") as file:
            (byte,) = os.pread(file.fileno(), 1, self.position)
            os.pwrite(file.fileno(), bytes([byte ^ self.mask]), self.position)


def means_nothing(file: Path, before: bytes, after: bytes) -> bool:
    """True if nothing else in the directory could contradict the change."""
    if file.name == ".lock":
        return True  # the boot of the machine
    if file.name == f"{LOG_STARTS}.tmp":
        return True  # an earlier checkpoint, kept for its room on a full disk
    if file.name == ".kafka_cleanshutdown":
        texts.read_clean_mark(after.decode())  # raises if it is not sound
        return True  # an epoch that Kafka's controller once gave
    if file.name == "meta.properties":
        _, *identity = texts.read_identity(after.decode())
        return identity == list(texts.read_identity(before.decode())[1:])  # the cluster's name
    if file.name in CHECKPOINTS:
        # An offset that is too low only means more work; a log start may lie anywhere in its log.
        told, now = (texts.read_checkpoint(each.decode()) for each in (before, after))
        is_lower = all(now[partition] <= told[partition] for partition in now)
        return now.keys() == told.keys() and (is_lower or file.name.startswith("log-start"))
    if file.name == "leader-epoch-checkpoint":
        # Where an epoch began below the log start is told by nothing else.
        starts = texts.read_checkpoint((file.parent.parent / LOG_STARTS).read_text())
        topic, _, index = file.parent.name.rpartition("-")
        start = starts.get((topic, int(index)), 0)
        was, found = (texts.read_leader_epochs(each.decode()) for each in (before, after))
        return [(epoch, max(at, start)) for epoch, at in was] == [
            (epoch, max(at, start)) for epoch, at in found
        ]
    return False


def test_P9_a_broker_at_work_may_be_looked_at(tmp_path: Path) -> None:
    """Its logs grow and roll while they are read: nothing of that is a finding."""
    broker = BrokerProcess(tmp_path / "data")
    try:
        servers = broker.bootstrap_servers
        create_topic(servers, "growing", segment_bytes=str(1 << 20))
        producer = plain_producer(servers, linger_ms=1)
        states = set()
        findings = []
        for _ in range(20):
            for number in range(200):
                producer.produce("growing", value=b"%d" % number * 500, partition=0)
            producer.poll(0)
            outcome = verify(broker.data)
            states.add(outcome.state)
            findings += outcome.findings
        producer.flush(30)
        assert (states, findings) == ({StopState.IN_USE}, [])
        assert run("verify", "--json", broker.data).returncode == 0
    finally:
        broker.kill()
    outcome = verify(broker.data)
    assert (outcome.state, outcome.findings) == (StopState.LEFT, [])


def test_P9_a_compacted_directory_has_no_findings(tmp_path: Path) -> None:
    """Offsets, records and markers that compaction took are not missed, and producers and aborted
    transactions still follow from the rest."""
    properties = {
        "log.cleaner.enable": "false",  # it is called here
        "log.cleaner.min.cleanable.ratio": "0",
        "log.cleaner.delete.retention.ms": 0,
        "log.segment.delete.delay.ms": 0,
    }
    with txn.Broker(tmp_path / "data", durability="process", properties=properties) as broker:
        servers = broker.bootstrap_servers
        sizes = {"internal_segment_bytes": "4096", "index_interval_bytes": "200"}
        create_topic(servers, "prices", 1, cleanup_policy="compact", **sizes)
        plain = plain_producer(servers, enable_idempotence=True)
        producer = transactional_producer(servers, "pricing")
        for number in range(60):
            plain.produce("prices", key=b"%d" % (number % 7), value=bytes(300), partition=0)
            assert plain.flush(30) == 0
            producer.begin_transaction()
            producer.produce("prices", key=b"t%d" % (number % 5), value=bytes(300), partition=0)
            assert producer.flush(30) == 0
            if number % 3:
                producer.commit_transaction(30)
            else:
                producer.abort_transaction(30)
            if number % 20 == 19:
                compact(broker)
        busy = verify(tmp_path / "data")
    outcome = verify(tmp_path / "data", is_deep=True)
    assert (busy.findings, outcome.findings, outcome.state) == ([], [], StopState.CLEAN)
    written = 60 + 60 + 60  # with the markers
    assert verify(tmp_path / "data" / "prices-0").records < written / 2


# ---------------------------------------------------------------- dump


def test_a_dump_tells_of_every_batch_and_record(data: Path) -> None:
    entries = dumped("--deep", data / "orders-0")
    batches = [each for each in entries if each["entry"] == "batch"]
    records = [each for each in entries if each["entry"] == "record"]
    assert [each["first_offset"] for each in batches[:2]] == [0, 3]
    assert sum(each["records"] for each in batches) == len(records)
    assert [each["control"] for each in records if "control" in each][:3] == [
        "abort",
        "commit",
        "commit",
    ]
    undecided = [each["offset"] for each in records if each.get("value") == "never decided"]
    assert len(undecided) == 1


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_dump_opens_every_codec(data: Path, codec: str) -> None:
    entries = dumped("--deep", data / f"{codec}-0")
    assert {each["codec"] for each in entries if each["entry"] == "batch"} == {codec}
    last = [each for each in entries if each["entry"] == "record"][-1]
    assert (last["key"], last["headers"]) == ("key-79", [["trace", "79"], ["nothing", None]])


def test_a_dump_decodes_internal_topics(data: Path) -> None:
    entries = [each for each in dumped("--deep", data) if each["entry"] == "record"]
    by_topic: dict[str, list[dict[str, Any]]] = {}
    for each in entries:
        by_topic.setdefault(Path(each["file"]).parent.name.rpartition("-")[0], []).append(each)
    states = {each["state"] for each in by_topic["__transaction_state"] if "state" in each}
    assert {"Ongoing", "PrepareCommit", "CompleteCommit", "CompleteAbort"} <= states
    groups = by_topic["__consumer_offsets"]
    assert {each["group_id"] for each in groups if "group_id" in each} == {"readers"}
    assert {each["topic"] for each in groups if "offset" in each and "topic" in each} == {
        "lz4",
        "zstd",
    }
    topics = [
        each["name"] for each in by_topic["__cluster_metadata"] if each.get("type") == "Topic"
    ]
    assert {"orders", "lz4", "__consumer_offsets"} <= set(topics)
    assert [each for each in entries if "undecodable" in each] == []


def test_a_dump_prints_every_other_file(data: Path) -> None:
    kinds = {each["entry"] for each in dumped(data)}
    assert {"index", "timeindex", "aborted", "producer", "leader-epoch", "partition"} <= kinds


def test_a_dump_as_text_has_a_line_for_each_entry(data: Path) -> None:
    done = run("dump", data / "orders-0" / "leader-epoch-checkpoint")
    assert (done.returncode, done.stdout.splitlines()) == (
        0,
        [
            str(data / "orders-0" / "leader-epoch-checkpoint"),
            "  leader-epoch leader_epoch=0 start_offset=0",
        ],
    )


def test_a_dump_goes_on_behind_damage_and_says_so_by_its_exit_code(data: Path) -> None:
    log = data / "none-0" / f"{0:020}.log"
    sound = len(dumped(log))
    with flipped(log, 9):
        done = run("dump", "--json", log)
    entries = [json.loads(line) for line in done.stdout.splitlines()]
    assert (done.returncode, len(entries)) == (1, sound)
    assert entries[0]["entry"] == "damage"
    assert entries[1]["entry"] == "batch"
