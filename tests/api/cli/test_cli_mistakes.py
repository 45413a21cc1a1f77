"""Mistakes of a new user of the command line: one line that names the mistake and the way out."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import txn
from support.clients import create_topic, plain_producer, send
from support.command_line import run_txn


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with txn.Broker() as broker:
        create_topic(broker.bootstrap_servers, "orders")
        send(plain_producer(broker.bootstrap_servers), "orders", [b"1", b"2", b"3"])
        # A group makes the internal topic.
        reset = ("groups", "reset-offsets", "shop", "--topic", "orders", "--to", "0", "--execute")
        assert run_txn(*reset, "--bootstrap", broker.bootstrap_servers)[0] == 0
        yield broker.bootstrap_servers


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (
            ("offsets", "list", "orders:0"),
            2,
            "Topic name is invalid: 'orders:0' contains one or more characters other than ASCII "
            "alphanumerics, '.', '_' and '-'; did you mean orders?",
        ),
        (("topics", "describe", ""), 2, "Topic name is invalid: the empty string is not allowed"),
        (
            ("consume", "orders", "--group", ""),
            2,
            "--group is empty: name a group, or leave it out to join none",
        ),
        (
            ("configs", "set", "--topic", "orders", "retention.ms=1", "retention.ms=2"),
            2,
            "retention.ms is given twice: give it one value",
        ),
        (
            ("topics", "create", "new", "--config", "flush.ms=1", "--config", "flush.ms=2"),
            2,
            "flush.ms is given twice: give it one value",
        ),
        (
            ("quotas", "set", "producer_byte_rate=1"),
            2,
            "give --user, --client-id or --ip, or their default",
        ),
        (
            ("topics", "delete", "__consumer_offsets", "--yes"),
            1,
            "topic '__consumer_offsets' is not deleted: TOPIC_AUTHORIZATION_FAILED: topic "
            "'__consumer_offsets' is internal",
        ),
        (
            ("topics", "delete-records", "__consumer_offsets:0=0", "--execute"),
            1,
            "the records of __consumer_offsets-0 are not deleted: INVALID_TOPIC_EXCEPTION: the "
            "topic is internal",
        ),
        (
            ("topics", "delete-records", "orders:0=99999999999999999999", "--execute"),
            2,
            "'orders:0=99999999999999999999': '99999999999999999999' is no offset: give a number, "
            "or latest",
        ),
        (
            ("produce", "orders", "--transactional-id", "pay", "--transaction-timeout", "99d"),
            2,
            "--transaction-timeout 99d: give 1s to 24d",
        ),
        (
            ("groups", "reset-offsets", "", "--topic", "orders", "--to", "0", "--yes"),
            2,
            "the name of the group is empty: a group has one",
        ),
        (
            ("transactions", "hanging", "--topic", ""),
            2,
            "there is no topic ''; there is __consumer_offsets, orders",
        ),
        (
            ("consume", "orders", "--from", ""),
            2,
            "'' is no place in a topic. Give earliest, latest, an offset, -10 for ten before the "
            "end, 2h-ago, or a time as in 2026-11-23T17:06",
        ),
        (
            ("transactions", "describe", "pay"),
            2,
            "no coordinator knows transactional id 'pay': it never was used, or not for "
            "`transactional.id.expiration.ms`. This names all ids: txn transactions list "
            "--bootstrap SERVERS",
        ),
    ],
)
def test_a_mistake_is_one_line_with_the_way_out(
    words: tuple[str, ...], code: int, told: str, servers: str
) -> None:
    """An empty group joined the one that `consume` hides, and committed its offsets there.

    Of a name that no topic can have, and of an internal topic, a code or a right was told.
    """
    done = run_txn(*words, "--bootstrap", servers)
    assert done == (code, "", f"txn: {told.replace('SERVERS', servers)}\n")


def test_an_empty_address_is_not_the_default_one() -> None:
    """A variable that was not set led to a cluster that was not meant."""
    for words in (("topics", "list"), ("topics", "delete", "orders", "--yes"), ("users", "list")):
        code, out, err = run_txn(*words, "--bootstrap", "")
        told = "txn: --bootstrap is empty: give HOST:PORT, or leave it out\n"
        assert (code, out, err) == (2, "", told)


def test_a_misspelled_part_of_a_record_is_told_with_the_records_before_it(servers: str) -> None:
    """A question mark and a full stop stood side by side."""
    lines = b'{"value": "1"}\n{"vaule": "2"}\n'
    code, _, err = run_txn("produce", "orders", "--json-lines", "--bootstrap", servers, stdin=lines)
    assert code == 2
    assert err.endswith("no part 'vaule'; did you mean value? Stored before it: 1 record\n")


def test_a_password_that_nobody_can_type_is_one_line_without_pythons_source(servers: str) -> None:
    code, out, err = run_txn("users", "add", "ann", "--bootstrap", servers, stdin=b"")
    assert (code, out) == (2, "")
    assert "getpass" not in err
    assert err.splitlines()[-1].startswith("txn: nobody can type the password: ")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"\xff\xfe", "is no JSON: "),
        (b"[" * 100_000, "is no JSON: "),
        (b"[1]", "is no output of `txn groups describe --json`: no partitions"),
        (b'{"partitions": null}', "no partitions"),
        (
            b'{"partitions": [1]}',
            "entry 1 of partitions needs a topic, a partition and a committed",
        ),
        (
            b'{"partitions": [{"topic": "orders", "partition": "x", "committed_offset": 1}]}',
            "entry 1 of partitions needs",
        ),
        (b'{"partitions": [{"topic": "orders", "partition": 0}]}', "entry 1 of partitions needs"),
    ],
)
def test_a_file_of_offsets_of_another_form_is_told_in_words(
    content: bytes, told: str, tmp_path: Path
) -> None:
    """An exception of Python was told, as `TypeError('list indices must be integers …')`."""
    file = tmp_path / "offsets.json"
    file.write_bytes(content)
    code, out, err = run_txn("groups", "reset-offsets", "shop", "--from-file", file)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"txn: --from-file {str(file)!r}")
    assert told in err


RESET_SHOOP = ("groups", "reset-offsets", "shoop", "--topic", "orders", "--to", "0")
NOTE = "there is no group 'shoop' yet: this makes it; did you mean shop?"


def test_a_plan_of_offsets_says_that_it_makes_a_group_and_names_the_nearest(servers: str) -> None:
    """A misspelled name made a new group, and neither the plan nor its execution told."""
    plan = (*RESET_SHOOP, "--dry-run", "--bootstrap", servers)
    code, out, err = run_txn(*plan)
    assert (code, err, out.splitlines()[0]) == (0, "", NOTE)
    told = json.loads(run_txn(*plan, "--json")[1])
    assert (told["new_group"], told["nearest_group"]) == (True, "shop")


@pytest.mark.parametrize(("as_json", "told"), [((), f"{NOTE}\n"), (("--json",), "")])
def test_offsets_that_make_a_group_say_so_and_name_the_nearest(
    as_json: tuple[str, ...], told: str, servers: str
) -> None:
    code, out, err = run_txn(*RESET_SHOOP, "--execute", *as_json, "--bootstrap", servers)
    run_txn("groups", "delete", "shoop", "--yes", "--bootstrap", servers)
    assert (code, err) == (0, told)
    assert not as_json or json.loads(out)["nearest_group"] == "shop"


def test_offsets_of_a_group_that_is_there_say_nothing_of_a_new_one(servers: str) -> None:
    words = ("groups", "reset-offsets", "shop", "--topic", "orders", "--to", "0", "--execute")
    code, out, err = run_txn(*words, "--json", "--bootstrap", servers)
    told = json.loads(out)
    assert (code, err, told["new_group"], told["nearest_group"]) == (0, "", False, None)


@pytest.mark.parametrize(
    ("places", "told"),
    [
        (("--from", "5", "--to", "3"), "--from 5 lies behind --to 3"),
        (("--from", "-3", "--to", "-10"), "--from -3 lies behind --to -10"),
        (("--from", "1h-ago", "--to", "2h-ago"), "--from 1h-ago lies behind --to 2h-ago"),
        (
            ("--from", "2026-11-23T17:06", "--to", "2026-11-22"),
            "--from 2026-11-23T17:06 lies behind --to 2026-11-22",
        ),
        (("--from", "-1", "--to", "0"), "--from -1 lies behind --to 0"),
        (("--from", "2h-ago", "--to", "earliest"), "--to earliest stops before the first record"),
        (("--group", "shop", "--to", "earliest"), "--to earliest stops before the first record"),
        (("--from", "latest"), "--from latest begins at the end, where reading stops"),
        (("--from", "latest", "--to", "9"), "--from latest begins at the end, where reading stops"),
    ],
)
def test_places_between_which_nothing_can_lie_are_wrong_usage(
    places: tuple[str, ...], told: str, servers: str
) -> None:
    """They printed nothing, and ended with 0."""
    code, out, err = run_txn("consume", "orders", *places, "--bootstrap", servers)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"txn: {told}")


@pytest.mark.parametrize("places", [("--from", "0", "--to", "0"), ("--from", "2h-ago"), ()])
def test_places_between_which_records_may_lie_are_no_mistake(
    places: tuple[str, ...], servers: str
) -> None:
    code, _, err = run_txn("consume", "orders", *places, "--bootstrap", servers)
    assert (code, err) == (0, "")


@pytest.mark.parametrize(("group", "is_told"), [("shop", True), ("unheard-of", False)])
def test_a_beginning_that_moves_no_group_is_told(group: str, is_told: bool, servers: str) -> None:
    """`--from earliest` beside a group that had read all printed nothing, and not a word."""
    words = ("consume", "orders", "--group", group, "--from", "earliest", "--max-records", 1)
    code, _, err = run_txn(*words, "--bootstrap", servers)
    note = (
        "txn: group 'shop' has an offset in each partition, and begins there: --from earliest is "
        "for partitions without one. `txn groups reset-offsets` moves a group\n"
    )
    assert (code, err) == (0, note if is_told else "")


def test_a_group_is_not_given_a_part_of_a_topic(servers: str) -> None:
    """It said that there is no topic of that name."""
    words = ("consume", "orders-0", "--group", "shop", "--bootstrap", servers)
    assert run_txn(*words) == (
        2,
        "",
        "txn: a group shares out all partitions of a topic: give orders, not orders-0. Without "
        "--group one partition is read\n",
    )


ASKING = {
    "topics delete": ("orders",),
    "topics delete-records": ("orders:0=1",),
    "groups delete": ("shop",),
    "groups reset-offsets": ("shop", "--topic", "orders", "--to", "0"),
}


@pytest.mark.parametrize("command", ASKING)
def test_a_command_that_nobody_can_confirm_names_the_word_of_its_page(
    command: str, servers: str
) -> None:
    """It advised --yes where docs/cli.md had --execute; the others knew no --execute."""
    words = (*command.split(), *ASKING[command], "--bootstrap", servers)
    code, out, err = run_txn(*words, stdin=b"")
    assert (code, out) == (2, "")
    assert err.endswith("standard input is no terminal. Give --yes\n")


@pytest.mark.parametrize("command", [*ASKING, "transactions abort"])
def test_every_command_that_asks_takes_both_words_and_advises_one(command: str) -> None:
    shown = run_txn(*command.split(), "--help")[1]
    (option,) = [line for line in shown.splitlines() if line.split()[:1] == ["--yes,"]]
    assert option.split() == "--yes, --execute Do not ask.".split()
    assert shown.count("--execute") == 1
