"""Wrong usage in one line with the way out, and commands that Ctrl-C ends."""

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing

import pytest

import txn
from support.clients import create_topic
from support.command_line import Terminal, run_txn


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("topic list", "No such command 'topic'. Did you mean 'topics', 'top'? `txn -h` shows"),
        ("topics lst", "No such command 'lst'. Did you mean 'list'? `txn topics -h` shows"),
        ("settings --topics", "No such option: --topics (Possible options: --topic)."),
        (
            "topics describe --topic orders",
            "No such option: --topic. The topic stands without it: txn topics describe NAME.",
        ),
        ("groups describe --group shop", "The group stands without it: txn groups describe NAME."),
        (
            "groups reset-offsets shop --to-earliest",
            "No such option: --to-earliest. Use --to PLACE.",
        ),
        ("groups reset shop", "No such command 'reset'. Did you mean 'reset-offsets'? `txn groups"),
        ("topics create", "Missing argument 'TOPIC'. `txn topics create -h` shows its usage"),
        ("transactions list --state Onging", "Invalid value for '--state': 'Onging' is not one of"),
        ("topics list orders", "(orders). `txn topics list -h` shows its usage"),
    ],
)
def test_wrong_usage_is_one_line_with_the_way_out(words: str, told: str) -> None:
    """It was five lines of usage, before the mistake, while the page promises one."""
    code, out, err = run_txn(*words.split())
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("txn: ")
    assert told in err


def test_a_group_of_commands_alone_shows_its_help() -> None:
    code, out, err = run_txn("topics")
    assert "Usage: txn topics [OPTIONS] COMMAND" in out + err
    assert code in (0, 2)  # by the version of click


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """An address that takes connections, and never answers."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        yield listening


@pytest.mark.parametrize(
    "words", ["topics list", "topics describe", "explain orders", "users list", "groups delete x"]
)
def test_ctrl_c_ends_a_command_with_one_line_and_its_own_code(
    words: str, silent: socket.socket
) -> None:
    """All but one said nothing, or by an older click: Aborted!, with the code of a refusal."""
    servers = f"127.0.0.1:{silent.getsockname()[1]}"
    process = subprocess.Popen(
        [sys.executable, "-m", "txn", *words.split(), "--bootstrap", servers],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    connection, _ = silent.accept()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    connection.close()
    assert (process.returncode, out, err) == (130, b"", b"txn: interrupted\n")


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with txn.Broker() as broker:
        create_topic(broker.bootstrap_servers, "orders")
        yield broker.bootstrap_servers


@pytest.mark.parametrize("answer", ["n\n", ""])
def test_a_no_or_the_end_of_input_changes_nothing_and_says_so(
    answer: str, servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended with 1, and nothing or a bare Aborted!"""
    monkeypatch.setattr("sys.stdin", Terminal(answer))
    code, out, err = run_txn("topics", "delete", "orders", "--json", "--bootstrap", servers)
    assert (code, out) == (1, "")  # the question is no JSON
    assert err.endswith("txn: not confirmed, so nothing is changed\n")
    assert "orders" in run_txn("topics", "list", "--bootstrap", servers)[1]


def test_no_group_is_deleted_where_one_of_the_names_is_wrong(servers: str) -> None:
    """The first was deleted, and the error about the second did not say so."""
    for group in ("one", "two"):
        reset = ("groups", "reset-offsets", group, "--topic", "orders", "--to", "0", "--yes")
        run_txn(*reset, "--json", "--bootstrap", servers)
    code, out, err = run_txn("groups", "delete", "one", "twoo", "--yes", "--bootstrap", servers)
    assert (code, out) == (2, "")
    assert err == "txn: there is no group 'twoo'; did you mean two?\n"
    assert "one" in run_txn("groups", "list", "--bootstrap", servers)[1]


def test_a_deletion_that_stops_half_way_names_the_part_that_is_done(servers: str) -> None:
    """A topic was deleted, and the error about the next one did not say so."""
    create_topic(servers, "gone")
    reset = ("groups", "reset-offsets", "one", "--topic", "orders", "--to", "0", "--yes")
    run_txn(*reset, "--json", "--bootstrap", servers)  # makes the internal topic
    delete = ("topics", "delete", "gone", "__consumer_offsets", "orders", "--yes")
    code, out, err = run_txn(*delete, "--bootstrap", servers)
    assert (code, out) == (1, "")
    assert "txn: stopped half-way. Done are: gone\n" in err
    listed = run_txn("topics", "list", "--bootstrap", servers)[1]
    assert [line.split()[0] for line in listed.splitlines()] == ["topic", "orders"]


def test_the_help_of_abort_asks_to_look_at_the_other_system_of_a_two_phase_commit() -> None:
    code, out, _ = run_txn("transactions", "abort", "--help")
    told = " ".join(out.replace("\n", " ").split())
    assert code == 0
    assert "first look at the decision of the other system: if it committed, an abort loses" in told
    assert "always safe" not in told
