"""A misspelled name of any kind is answered with the nearest one, and nothing is changed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import txn
from support.clients import create_topic
from support.command_line import run_txn


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker with the topic `orders`, and an `alice` who has a quota and the id `loader`."""
    password = tmp_path_factory.mktemp("users") / "alice"
    password.write_text("pass\n")
    with txn.Broker() as broker:
        create_topic(broker.bootstrap_servers, "orders")
        for words in (
            ("users", "add", "alice", "--password-file", password),
            ("quotas", "set", "--user", "alice", "producer_byte_rate=1000"),
            ("produce", "orders", "--transactional-id", "loader"),
        ):
            done = run_txn(*words, "--bootstrap", broker.bootstrap_servers, stdin=b"1\n")
            assert done[0] == 0, done
        yield broker.bootstrap_servers


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        ("users remove alce", 2, "there is no user 'alce'; did you mean alice?"),
        ("users remove somebody", 2, "there is no user 'somebody'. `txn users list` names them"),
        ("quotas set --user bob producer_byte_rte=5", 2, "did you mean producer_byte_rate?"),
        ("quotas remove --user alice producer_byte_rte", 2, "did you mean producer_byte_rate?"),
        ("quotas remove --user alce", 1, "no such quota of user alce; did you mean user alice?"),
        ("quotas remove --user alice request_percentage", 1, "no such quota of user alice\n"),
        ("transactions describe lodaer", 2, "id 'lodaer'; did you mean loader?\n"),
        ("transactions abort --transactional-id lodaer", 2, "'lodaer'; did you mean loader?\n"),
        ("transactions abort --transactional-id none", 2, "`txn transactions hanging` finds it"),
        (
            "transactions abort --topic-partition ordrs-0 --start-offset 1",
            2,
            "there is no topic 'ordrs-0'; did you mean orders?",
        ),
        ("offsets list orders --at lastest", 2, "in a topic; did you mean latest? Give earliest,"),
        ("configs set --all-brokers log.cleaner.thread=2", 2, "did you mean log.cleaner.threads?"),
        ("configs set --broker 1 log.cleaner.thread=2", 2, "did you mean log.cleaner.threads?"),
    ],
)
def test_the_nearest_name_is_told(words: str, code: int, told: str, servers: str) -> None:
    """Users, ids of transactions and quotas had no hint, or one by the code of another mistake."""
    ended, out, err = run_txn(*words.split(), "--bootstrap", servers)
    assert (ended, out, err.count("\n")) == (code, "", 1)
    assert told in err


def test_the_topic_of_a_loss_that_is_misspelled_is_answered_with_the_nearest(
    tmp_path: Path,
) -> None:
    with txn.Broker(tmp_path) as broker:
        create_topic(broker.bootstrap_servers, "orders")
    code, _, err = run_txn("log", "accept-loss", tmp_path, "ordrs-0")
    assert (code, err) == (2, "txn: there is no partition ordrs-0; did you mean orders?\n")
    code, _, err = run_txn("log", "accept-loss", tmp_path, "orders-7")
    assert (code, err) == (2, "txn: topic 'orders' has no partition 7: it has 1, from 0 on\n")


def test_the_nearest_id_of_a_directory_is_told(tmp_path: Path) -> None:
    with txn.Broker(tmp_path) as broker:
        create_topic(broker.bootstrap_servers, "orders")
        words = ("produce", "orders", "--transactional-id", "loader")
        assert run_txn(*words, "--bootstrap", broker.bootstrap_servers, stdin=b"1\n")[0] == 0
    code, _, err = run_txn("transactions", "describe", "lodaer", "--data", tmp_path)
    assert (code, "id 'lodaer'; did you mean loader?" in err) == (2, True)
