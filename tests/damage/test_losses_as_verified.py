"""P9: a loss that `txn log verify` finds is given up by the command that it prints.

A start believes the bytes that were closed in order, or synced. So damage below is found by a look
at everything alone, or by a reader.
"""

import random
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

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
from support.damaged import VALUES, closed_directory, flip_bit, segment_of
from support.exploring import seed_of_run
from support.packed import around
from txn.cli.log import log_app
from txn.inspect.outcome import Finding, Outcome
from txn.inspect.verify import verify
from txn.storage.directory import CLEAN

pytestmark = pytest.mark.crash


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory whose broker was stopped in order, its path one that a shell splits."""
    return closed_directory(tmp_path_factory.mktemp("of a user") / "data")


@pytest.fixture
def data(closed: Path, tmp_path: Path) -> Path:
    (tmp_path / "a user's").mkdir()
    return Path(shutil.copytree(closed, tmp_path / "a user's" / "data"))


def follow_the_advice(data: Path) -> list[str]:
    """Run each command to give up a loss that a verification prints; return their partitions."""
    given_up = []
    for finding in verify(data).findings:
        _, is_printed, command = finding.advice.partition("txn log accept-loss ")
        if is_printed:
            words = shlex.split(command)
            if words[-1] not in given_up:
                done = CliRunner().invoke(log_app, ["accept-loss", *words])
                assert done.exit_code == 0, done.output
                given_up.append(words[-1])
    return given_up


def batch_bytes(data: Path) -> int:
    return len(segment_of(data).read_bytes()) // len(VALUES)


def flipped(data: Path) -> None:
    flip_bit(segment_of(data), 9 * batch_bytes(data) - 2)


def with_wrong_offset(data: Path) -> None:
    flip_bit(segment_of(data), 8 * batch_bytes(data) + 5)


def with_wrong_length(data: Path) -> None:
    flip_bit(segment_of(data), 8 * batch_bytes(data) + 9)


def unreadable(data: Path) -> None:
    """Its checksum is right, and its records cannot be read: `--deep` finds that."""
    size = batch_bytes(data)
    batch = bytearray(around("none", 1, b"\x7f" * (size - 61)))
    batch[:8] = (8).to_bytes(8)
    batch[12:16] = segment_of(data).read_bytes()[12:16]
    stored = bytearray(segment_of(data).read_bytes())
    stored[8 * size : 9 * size] = batch
    segment_of(data).write_bytes(stored)


def beyond_a_cleaning(data: Path) -> None:
    """The checkpoint of the cleaner tells of more than the log has."""
    (data / "cleaner-offset-checkpoint").write_text("0\n1\nbad 0 25\n")


@pytest.mark.parametrize(
    ("harm", "kept", "goes_on_at"),
    [
        (flipped, 8, 21),
        (with_wrong_offset, 8, 8 + (1 << 16) + 1),  # as far as it says: no offset comes twice
        (with_wrong_length, 8, 21),
        (beyond_a_cleaning, 21, 25),
    ],
)
def test_P9_what_a_start_believed_is_given_up_as_it_was_verified(
    data: Path, harm: Callable[[Path], None], kept: int, goes_on_at: int
) -> None:
    """The command that was printed answered that nothing is damaged."""
    harm(data)
    assert follow_the_advice(data) == ["bad-0"]
    with txn.Broker(data) as broker:
        servers = broker.bootstrap_servers
        assert read_all(servers, "bad") == VALUES[:kept]
        assert read_all(servers, "good") == VALUES
        assert send(plain_producer(servers), "bad", [b"new"]) == [goes_on_at]
        assert read_all(servers, "bad") == [*VALUES[:kept], b"new"]
    assert not verify(data).findings


def in_logs(outcome: Outcome) -> list[Finding]:
    """The findings in segments: a time index may have an entry of the batch that is gone."""
    return [each for each in outcome.findings if each.path.suffix == ".log"]


def test_P9_a_batch_that_no_client_can_read_is_given_up_with_all_behind_it(data: Path) -> None:
    unreadable(data)
    assert not in_logs(verify(data))
    (found,) = in_logs(verify(data, is_deep=True))
    words = shlex.split(found.advice.partition("txn log accept-loss ")[2])
    done = CliRunner().invoke(log_app, ["accept-loss", *words])
    assert done.exit_code == 0, done.output
    with txn.Broker(data) as broker:
        assert read_all(broker.bootstrap_servers, "bad") == VALUES[:8]
        assert ends(broker.bootstrap_servers, "bad")[1] == 21


def test_a_finding_in_a_log_comes_before_those_of_its_indexes(data: Path) -> None:
    flipped(data)
    for suffix in (".index", ".timeindex"):
        segment_of(data).with_suffix(suffix).write_bytes(b"\1" * 12)
    shown = CliRunner().invoke(log_app, ["verify", str(data)]).stdout.splitlines()
    named = [line.split(" ", 1)[0] for line in shown if not line.startswith(" ")]
    where = [place for place, line in enumerate(shown) if "00000.log" in line.split(":")[0]]
    assert where[0] == 0, named
    others = [place for place, line in enumerate(shown) if "index" in line.split(":")[0]]
    assert others
    assert max(where) < min(others)


def history(data: Path) -> Path:
    """Transactions of two topics, an open one, plain records and offsets of a group."""
    with txn.Broker(data) as broker:
        servers = broker.bootstrap_servers
        for topic in ("bad", "good"):
            create_topic(servers, topic)
        for number in range(8):
            producer = transactional_producer(servers, f"pay-{number % 3}")
            for topic in ("bad", "good"):
                commit_values(producer, topic, [b"%d" % number * 40])
                send(plain_producer(servers), topic, [b"plain" * 30])
        producer.begin_transaction()
        send(producer, "bad", [b"open"])
    return data


@pytest.mark.parametrize("is_clean", [True, False])
def test_P9_no_loss_that_was_accepted_leaves_a_directory_that_does_not_start(
    tmp_path: Path, is_clean: bool
) -> None:
    chance = random.Random(seed_of_run(3))
    whole = history(tmp_path / "whole")
    files = sorted(
        path.relative_to(whole)
        for path in whole.rglob("*")
        if path.parent.name in ("bad-0", "good-0") or path.parent.name.startswith("__transaction")
        if path.is_file() and path.stat().st_size
    )
    given_up = 0
    for turn in range(24):
        data = Path(shutil.copytree(whole, tmp_path / f"{turn}"))
        if not is_clean:
            (data / CLEAN).unlink()
        file = data / chance.choice([each for each in files if each.suffix == ".log"])
        if turn % 4 == 3:
            file = data / chance.choice(files)
        size = file.stat().st_size
        harm = chance.randrange(4)
        if harm == 0:
            file.unlink()
        elif harm == 1:
            file.write_bytes(file.read_bytes()[: chance.randrange(size)])
        else:
            flip_bit(file, chance.randrange(size), 1 << chance.randrange(8))
        said = f"{file.relative_to(data)}, harm {harm}"
        names = follow_the_advice(data)
        given_up += len(names)
        with txn.Broker(data) as broker:
            servers = broker.bootstrap_servers
            for name in {"bad-0", "good-0"} & set(names):
                read_all(servers, name[:-2])
                send(plain_producer(servers), name[:-2], [b"new"])
            commit_values(transactional_producer(servers, "pay-9"), "good", [b"later"])
        left = [each for each in verify(data).findings if "accept-loss" in each.advice]
        assert not left, f"{said}: {left}"
        shutil.rmtree(data)
    assert given_up > 8
