"""`txn` on the command line, as scripts and operators meet it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

import txn as embedded
from support.brokers import BrokerProcess
from support.clients import create_topic, plain_producer, read_all, send
from txn.config import BROKER_PROPERTIES, TOPIC_PROPERTIES, Property


def txn(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "txn", *arguments], capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_serve_stops_cleanly_on_a_signal_while_clients_are_there(
    tmp_path: Path, number: signal.Signals
) -> None:
    broker = BrokerProcess(tmp_path / "data", durability="commit")
    create_topic(broker.bootstrap_servers, "orders")
    producer = plain_producer(broker.bootstrap_servers)
    send(producer, "orders", [b"a"])

    assert broker.stop(number) == 0

    broker.restart()
    found = read_all(broker.bootstrap_servers, "orders")
    broker.stop()
    assert found == [b"a"]


def test_serve_takes_kafka_properties(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "data", "num.partitions=3", "auto.create.topics.enable=true")
    send(plain_producer(broker.bootstrap_servers), "made-by-itself", [b"a"], partition=2)
    broker.stop()
    assert (tmp_path / "data" / "made-by-itself-2").is_dir()


@pytest.mark.parametrize("command", [(), ("serve",), ("transactions", "list")])
def test_help_has_a_short_name_too(command: tuple[str, ...]) -> None:
    """`txn -h` was answered with: No such option: -h."""
    long = txn(*command, "--help")
    assert txn(*command, "-h").stdout == long.stdout
    assert long.stdout.startswith("Usage: ")


def test_help_names_every_command() -> None:
    done = txn("--help")
    assert done.returncode == 0
    assert {"serve", "demo"} <= set(done.stdout.split())


def test_an_unknown_command_is_wrong_usage() -> None:
    assert txn("surf").returncode == 2


def test_the_demo_refuses_a_directory_that_is_not_empty(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    done = txn("demo", "--directory", str(tmp_path))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"txn: {tmp_path} is not empty. The demo starts from nothing: give a new directory\n"
    )


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("arguments", [["--help"], ["log", "verify", "{data}"]])
def test_output_that_cannot_be_written_is_told_and_ends_with_1(
    tmp_path: Path, arguments: list[str], unbuffered: str
) -> None:
    """Python's own exit code was 120, which no page names."""
    embedded.Broker(tmp_path).close()
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "txn", *(each.format(data=tmp_path) for each in arguments)],
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    assert (done.returncode, done.stderr) == (
        1,
        "txn: cannot write the output: No space left on device\n",
    )


@pytest.mark.parametrize(
    ("arguments", "table"),
    [((), BROKER_PROPERTIES), (("--topic",), TOPIC_PROPERTIES)],
)
def test_the_list_of_settings_names_every_one_with_its_purpose(
    arguments: tuple[str, ...], table: Mapping[str, Property]
) -> None:
    """No page named the properties of a broker, and `-o` refused a guess."""
    listed = json.loads(txn("settings", "--json", *arguments).stdout)
    expected = {name: entry.about for name, entry in table.items() if not entry.is_internal}
    assert {each["name"]: each["purpose"] for each in listed} == expected
    text = txn("settings", *arguments).stdout
    assert [name for name in expected if f"\n{name}=" not in f"\n{text}"] == []


@pytest.mark.parametrize(
    "command",
    [
        ("log", "verify"),
        ("log", "dump"),
        ("transactions", "list", "--data"),
        ("transactions", "hanging", "--json", "--data"),
        ("explain", "orders", "--data"),
    ],
)
def test_output_whose_reader_has_gone_ends_in_silence_with_the_code_of_the_findings(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    """`txn log verify DATA | head -1` ended with 1, as if it had findings; others with 2."""
    with embedded.Broker(tmp_path) as broker:
        create_topic(broker.bootstrap_servers, "orders")
        send(plain_producer(broker.bootstrap_servers), "orders", [b"value"])
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "txn", *command, str(tmp_path)],
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")
