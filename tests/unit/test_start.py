"""The modules that a broker loads and the files it forces before it serves, and the form of its log
lines.
"""

import gc
import logging
import os
import subprocess
import sys
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import txn
from support.clients import WAIT_S, create_topic, plain_producer, send
from support.own_process import in_own_process
from txn import _core
from txn.cli.commands import app
from txn.cli.plain_serve import read_plain_serve
from txn.logs import log
from txn.server.lifecycle.broker import service_of

LOADED = """\
import os, signal, sys
write = os.write

def look(descriptor, content):
    if descriptor != 1:
        return write(descriptor, content)
    loaded = [name for name in {names!r} if name in sys.modules]
    write(descriptor, " ".join([content.decode().split()[0], *loaded]).encode())
    os.kill(os.getpid(), signal.SIGTERM)
    return len(content)

os.write = look
sys.argv = ["txn", "serve", "--listen", "127.0.0.1:0", "--data", {data!r}]
from txn.cli import main
main()
"""
NOT_NEEDED = (
    *("typer", "click", "pydantic", "rich", "pygments", "argparse", "difflib"),
    *("confluent_kafka", "pyspark", "pyarrow", "crc32c", "hypothesis"),
    *("email", "importlib.metadata", "tempfile", "shutil", "multiprocessing", "ssl"),
)


def test_a_server_loads_nothing_that_only_other_commands_or_later_moments_need(
    tmp_path: Path,
) -> None:
    """`txn serve` took two and a half times as long to start: typer brought pydantic, and that
    the metadata of every installed package."""
    done = subprocess.run(
        [sys.executable, "-c", LOADED.format(names=NOT_NEEDED, data=str(tmp_path / "data"))],
        capture_output=True,
        text=True,
        check=True,
        timeout=WAIT_S,
    )
    assert done.stdout.split() == ["listening"]


def test_a_first_start_forces_its_metadata_log_once(tmp_path: Path) -> None:
    """It forced the features it had written, and again the topic that it writes next."""
    before = _core.sync_count()
    with txn.Broker(tmp_path / "data", durability="commit"):
        assert _core.sync_count() - before == 3  # the segment, its leader epochs, its topic


def test_a_temporary_broker_that_stops_forces_nothing_and_leaves_nothing() -> None:
    """It waited for the disk once for each partition, and then removed all of it."""
    with txn.Broker() as broker:
        create_topic(broker.bootstrap_servers, "orders", 3)
        send(plain_producer(broker.bootstrap_servers), "orders", [b"1", b"2"], partition=1)
        before = _core.sync_count()
    assert _core.sync_count() == before
    assert not broker.path.exists()


def test_brokers_that_were_closed_leave_nothing_in_their_process(tmp_path: Path) -> None:
    """Each left its node, its logs and four file descriptors: the server held them in a cycle."""
    in_own_process(close_three_brokers, str(tmp_path / "data"))


def close_three_brokers(directory: str) -> None:
    def open_files() -> int:
        gc.collect()
        return len(os.listdir("/proc/self/fd"))

    with txn.Broker(directory):
        pass  # any descriptor that the first one opens for the whole process
    before = open_files()
    nodes = []
    for _ in range(3):
        with txn.Broker(directory) as broker:
            nodes.append(weakref.ref(service_of(broker).node))
    del broker

    assert open_files() == before
    assert [node() for node in nodes] == [None, None, None]


LOG_IN = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "SCRAM-SHA-256",
    "sasl_username": "alice",
    "sasl_password": "secret",
}


@pytest.mark.parametrize(
    ("options", "client"),
    [
        ({}, {}),
        ({"durability": "always"}, {}),
        ({"metrics": "127.0.0.1:0", "users": {"alice": "secret"}}, LOG_IN),
    ],
    ids=["plain", "always", "log-ins-and-metrics"],
)
def test_a_close_gives_descriptors_and_threads_back_without_a_collection(
    options: dict[str, Any], client: dict[str, Any]
) -> None:
    """The story: each left four descriptors and the two threads that open large batches, which a
    collection after hundreds of resets of a test's broker took away."""
    in_own_process(close_without_a_collection, options, client)


def close_without_a_collection(options: dict[str, Any], client: dict[str, Any]) -> None:
    def left() -> tuple[int, list[str]]:
        names = []
        for path in Path("/proc/self/task").glob("*/comm"):
            with suppress(OSError):  # a client's thread has ended meanwhile
                names.append(path.read_text())
        return len(os.listdir("/proc/self/fd")), [name for name in names if name.startswith("txn-")]

    def use() -> None:
        with txn.Broker(**options) as broker:
            large = {"compression_type": "gzip", "message_max_bytes": 4_000_000, **client}
            send(plain_producer(broker.bootstrap_servers, **large), "orders", [bytes(2_000_000)])

    use()  # any descriptor that the first one opens for the whole process
    gc.collect()
    gc.disable()
    before = left()
    use()
    assert left() == before


Asked = tuple[Path | None, str, str | None, str | None, list[str], Path | None, str | None]


def as_typer_reads(words: list[str], monkeypatch: pytest.MonkeyPatch) -> Asked:
    """The arguments of the command."""
    asked: list[Asked] = []
    monkeypatch.setattr(
        "txn.server.lifecycle.serve.serve",
        lambda data, listen, durability, metrics, options, config, console: asked.append(
            (data, listen, durability, metrics, list(options), config, console)
        ),
    )
    assert CliRunner().invoke(app, words).exit_code == 0
    return asked[0]


@pytest.mark.parametrize(
    "line",
    [
        "serve",
        "serve --data data/ --listen 127.0.0.1:0 --durability commit",
        "serve --listen=[::1]:9092 --data=/data=1 --durability=always",
        "serve -o num.partitions=6 --option log.dirs=x --option=node.id=2",
        "serve --metrics 127.0.0.1:9308 --data one",
        "serve --console 127.0.0.1:9080 --data one",
        "serve --config server.properties -o node.id=2",
    ],
)
def test_a_plain_serve_is_read_as_typer_reads_it(
    line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = read_plain_serve(line.split())
    assert plain is not None
    assert plain._replace(options=list(plain.options)) == as_typer_reads(line.split(), monkeypatch)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "--version",
        "log verify data",
        "serve --data one --data two --listen a:1",
        "serve --help",
        "serve data",
        "serve --listen",
        "serve --listen --data x",
        "serve --listen=",
        "serve --port 9092",
        "serve --dat x",
        "serve -onum.partitions=6",
        "serve -- --data x",
        "serve --config x --check",
        "serve --ephemeral",
    ],
)
def test_whatever_else_is_written_is_left_to_typer(line: str) -> None:
    assert read_plain_serve(line.split()) is None


def test_a_log_line_is_an_event_and_its_facts(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "txn"):
        log.info("txn.fenced", transactional_id="pay-3", producer_epoch=4)
    assert caplog.messages == ["txn.fenced transactional_id=pay-3 producer_epoch=4"]


def test_a_fact_that_could_be_taken_for_two_is_quoted(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "txn"):
        log.warning("disk.full", reason='no space on "/data" left=0\n', directory="")
    assert caplog.messages == [r'disk.full reason="no space on \"/data\" left=0\n" directory=""']


def test_an_exception_is_told_with_the_event(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "txn"):
        try:
            raise ValueError("seven")
        except ValueError:
            log.exception("request.failed", api_key=7)
    assert caplog.records[0].exc_info is not None
    assert "ValueError: seven" in caplog.text
