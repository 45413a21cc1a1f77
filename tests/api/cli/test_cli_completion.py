"""A shell completes commands, options, and the names that the cluster has."""

from collections.abc import Iterator

import pytest

import txn
from support.clients import create_topic
from support.command_line import run_txn


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with txn.Broker() as broker:
        servers = broker.bootstrap_servers
        for topic in ("orders", "orders-2", "prices"):
            create_topic(servers, topic)
        at = ("--topic", "orders", "--to", "0", "--execute", "--bootstrap", servers)
        assert run_txn("groups", "reset-offsets", "shop", *at)[0] == 0
        yield servers


def completed(monkeypatch: pytest.MonkeyPatch, line: str) -> list[str]:
    """The words that bash offers for the last one of a line."""
    monkeypatch.setenv("_TXN_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(line.split(" ")) - 1))
    code, out, err = run_txn()
    assert (code, err) == (0, "")
    return out.split()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("txn to", ["topics", "top"]),
        ("txn groups re", ["reset-offsets"]),
        ("txn consume --fol", ["--follow"]),
        ("txn consume --isolation read_u", ["read_uncommitted"]),
    ],
)
def test_commands_and_options_are_completed(
    line: str, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert sorted(completed(monkeypatch, line)) == sorted(words)


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("txn topics describe --bootstrap {} or", ["orders", "orders-2"]),
        ("txn consume --bootstrap-server {} pr", ["prices"]),
        ("txn produce --bootstrap {} x", []),
        ("txn configs set --bootstrap {} --topic pr", ["prices"]),
        ("txn groups describe --bootstrap {} s", ["shop"]),
        ("txn consume --bootstrap {} orders --group s", ["shop"]),
        ("txn explain --bootstrap {} orders-", ["orders-2"]),
    ],
)
def test_names_of_the_cluster_are_completed(
    line: str, names: list[str], servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert completed(monkeypatch, line.format(servers)) == names


@pytest.mark.parametrize(
    "line",
    [
        "txn topics describe --bootstrap 127.0.0.1:1 or",
        "txn groups describe --bootstrap 127.0.0.1:1 s",
        "txn topics describe --bootstrap nowhere or",
        "txn topics describe -X nonsense or",
    ],
)
def test_a_cluster_that_does_not_answer_completes_nothing(
    line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert completed(monkeypatch, line) == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_a_script(shell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_TXN_COMPLETE", f"source_{shell}")
    code, out, err = run_txn()
    assert (code, err) == (0, "")
    assert f"_TXN_COMPLETE=complete_{shell}" in out
