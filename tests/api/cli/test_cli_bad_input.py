"""Commands that speak to a cluster, given a wrong address, a wrong way in, or no rights."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import txn
from support import packed
from support.clients import create_topic
from support.command_line import run_txn
from support.secured_broker import PASSWORD, SecuredBroker, secured_broker
from support.wire_client import RawConnection
from txn.cli.plain_topics import PlainTopics, read_plain_topics
from txn.config import STANDARD_AUTHORIZER

COMMANDS = {
    "topics list": ("topics", "list"),
    "topics list --internal": ("topics", "list", "--internal"),
    "topics create": ("topics", "create", "orders"),
    "topics sizes": ("topics", "sizes"),
    "topics delete-records": ("topics", "delete-records", "orders:0=1", "--execute"),
    "offsets list": ("offsets", "list", "orders"),
    "produce": ("produce", "orders"),
    "produce in a transaction": ("produce", "orders", "--transactional-id", "loader"),
    "consume": ("consume", "orders"),
    "consume in a group": ("consume", "orders", "--group", "shop"),
    "groups reset-offsets": (
        *("groups", "reset-offsets", "shop", "--topic", "orders", "--to", "0"),
        "--execute",
    ),
    "groups delete": ("groups", "delete", "shop", "--yes"),
    "configs describe": ("configs", "describe", "--topic", "orders"),
    "configs set": ("configs", "set", "a=b", "--broker", "1"),
    "cluster describe": ("cluster", "describe"),
    "top": ("top", "-n", "1"),
    "acls list": ("acls", "list"),
    "quotas list": ("quotas", "list"),
    "users list": ("users", "list"),
}


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with secured_broker(tmp_path_factory.mktemp("secured")) as running:
        yield running


@pytest.fixture(scope="module")
def closed() -> Iterator[str]:
    """Servers of a broker whose clients may do nothing."""
    with txn.Broker(properties={"authorizer.class.name": STANDARD_AUTHORIZER}) as broker:
        yield broker.bootstrap_servers


@pytest.fixture(scope="module")
def open_broker() -> Iterator[str]:
    with txn.Broker() as broker:
        create_topic(broker.bootstrap_servers, "orders")
        yield broker.bootstrap_servers


def one_line(words: tuple[str, ...], *options: object) -> tuple[int, str]:
    code, out, err = run_txn(*words, *options)
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith("txn: ")
    return code, err


@pytest.mark.parametrize("command", COMMANDS)
def test_no_broker_is_one_line_that_says_what_to_give(command: str) -> None:
    code, err = one_line(COMMANDS[command], "--bootstrap", "127.0.0.1:1")
    assert code == 2
    assert "127.0.0.1:1 cannot be reached: Connection refused" in err
    assert err.endswith("Give --bootstrap the address of a broker that runs\n")


@pytest.mark.parametrize(
    "words",
    [
        ("groups", "list"),
        ("groups", "describe", "shop"),
        ("transactions", "abort", "--transactional-id", "shop"),
    ],
)
def test_a_command_that_reads_no_directory_advises_none(words: tuple[str, ...]) -> None:
    code, err = one_line(words, "--bootstrap", "127.0.0.1:1")
    assert (code, "--data" in err) == (2, False)
    assert err.endswith("Give --bootstrap the address of a broker that runs\n")


@pytest.mark.parametrize("command", COMMANDS)
def test_an_address_of_another_form_is_wrong_usage(command: str) -> None:
    code, err = one_line(COMMANDS[command], "--bootstrap", "nowhere")
    assert (code, "--bootstrap takes HOST:PORT" in err) == (2, True)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_cluster_that_wants_tls_is_named_with_the_setting(
    command: str, secured: SecuredBroker
) -> None:
    code, err = one_line(COMMANDS[command], "--bootstrap", secured.servers["SASL_SSL"])
    assert code == 1
    assert "speaks TLS on this port; set security.protocol to SSL or SASL_SSL" in err


@pytest.mark.parametrize("command", COMMANDS)
def test_a_wrong_password_is_told_and_not_shown(
    command: str, secured: SecuredBroker, tmp_path: Path
) -> None:
    listener, settings = secured.ways()["PLAIN over SASL_SSL"]
    settings["sasl.jaas.config"] = settings["sasl.jaas.config"].replace(PASSWORD, "wr0ng")
    path = tmp_path / "client.properties"
    path.write_text("\n".join(f"{name}={value}" for name, value in settings.items()))
    ways = ("--bootstrap", secured.servers[listener], "--command-config", path)
    code, err = one_line(COMMANDS[command], *ways)
    assert code == 1
    assert "Invalid username or password" in err
    assert "wr0ng" not in err


@pytest.mark.parametrize(
    ("command", "needed"),
    [
        ("topics create", "Its user needs Create on the topic"),
        ("topics sizes", "Its user needs Describe on the cluster"),
        ("topics delete-records", "Its user needs Describe on the topic"),
        ("offsets list", "Its user needs Describe on the topic"),
        ("produce", "Its user needs Describe on the topic"),
        ("consume", "Its user needs Describe on the topic"),
        ("groups reset-offsets", "Its user needs Describe on the group"),
        ("groups delete", "GROUP_AUTHORIZATION_FAILED for group 'shop'. Its user needs Describe"),
        ("configs describe", "Its user needs Describe on the topic"),
        ("configs set", "Its user needs AlterConfigs on the cluster"),
    ],
)
def test_no_rights_are_told_with_the_right_that_is_needed(
    command: str, needed: str, closed: str
) -> None:
    code, err = one_line(COMMANDS[command], "--bootstrap", closed)
    assert (code, needed in err) == (1, True), err


def test_a_list_shows_no_topic_that_its_user_may_not_see(closed: str) -> None:
    assert run_txn("topics", "list", "--bootstrap", closed) == (0, "no topic\n", "")


@pytest.mark.parametrize(
    "words",
    [
        ("topics", "create", "{}"),
        ("topics", "describe", "{}"),
        ("consume", "{}"),
        ("consume", "orders", "--group", "{}"),
        ("groups", "describe", "{}"),
        ("produce", "orders", "--transactional-id", "{}"),
        ("produce", "orders", "--header", "{}=1"),
    ],
)
def test_a_name_that_is_no_utf8_is_wrong_usage(words: tuple[str, ...], open_broker: str) -> None:
    """librdkafka's consumer ended the process by an assertion at such a group."""
    given = tuple(word.format("or\udcffders") for word in words)
    code, err = one_line(given, "--bootstrap", open_broker)
    assert (code, "is no UTF-8" in err) == (2, True)


def test_a_command_that_is_not_there_is_named_with_the_nearest() -> None:
    code, _, err = run_txn("topcs", "list")
    assert (code, "Did you mean 'topics'" in err) == (2, True)


REPEATED = {
    "configs set --topic orders --topic t2 retention.ms=1": "--topic",
    "configs describe --topic=orders --topic t2": "--topic",
    "topics list --bootstrap 127.0.0.1:1 --bootstrap-server 127.0.0.1:1": "--bootstrap",
    "topics create orders --partitions 2 --partitions 3": "--partitions",
    "produce orders --key a --key b": "--key",
    "consume orders -n 1 --max-records 2": "--max-records",
    "groups reset-offsets shop --to 1 --to 2 --all-topics": "--to",
    "top --every 1s --every 2s": "--every",
    "explain orders --partition 0 --partition 1": "--partition",
    "serve --data a --data b": "--data",
    "transactions list --bootstrap a:1 --bootstrap b:1": "--bootstrap",
}


@pytest.mark.parametrize("words", REPEATED)
def test_an_option_with_one_value_is_not_given_again(words: str) -> None:
    """The last one held: of two topics one was changed, with 0."""
    given = REPEATED[words]
    code, err = one_line(tuple(words.split()))
    assert (code, err) == (
        2,
        f"txn: {given} takes one value and is given 2 times: give it once, or run the command for "
        "each\n",
    )


def test_other_options_are_given_again(open_broker: str) -> None:
    """Help is told in any case."""
    create_topic(open_broker, "again", partitions=2)
    where = ("-X", "client.id=a", "-X", "client.id=b", "--bootstrap", open_broker)
    headers = ("--header", "a=1", "--header", "b=2", "--json", "--json")
    assert run_txn("produce", "again", *headers, *where, stdin=b"1\n")[0] == 0
    assert run_txn("consume", "again", "--headers", *where) == (0, "a=1,b=2\t1\n", "")
    assert run_txn("configs", "set", "--topic", "a", "--topic", "b", "--help")[0] == 0


@pytest.mark.parametrize(
    ("words", "read"),
    [
        ("topics list", PlainTopics("127.0.0.1:9092", as_json=False)),
        ("topics list --json --bootstrap a:1", PlainTopics("a:1", as_json=True)),
        ("topics list --bootstrap-server=a:1", PlainTopics("a:1", as_json=False)),
        ("topics list --bootstrap a:1 --bootstrap-server b:1", None),
        ("topics list --help", None),
        ("topics list --bootstrap", None),
        ("topics list --bootstrap --json", None),
        ("topics list --internal", None),
        ("topics list -X a=b", None),
        ("topics", None),
    ],
)
def test_a_plain_list_is_read_without_typer(words: str, read: PlainTopics | None) -> None:
    assert read_plain_topics(words.split()) == read


def test_a_plain_list_leaves_a_way_in_of_the_environment_to_typer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TXN_COMMAND_CONFIG", "client.properties")
    assert read_plain_topics(["topics", "list"]) is None


def test_a_plain_list_loads_neither_typer_nor_the_protocol_library(closed: str) -> None:
    """They take longer than the whole command should: 150 ms from the shell."""
    program = (
        "import sys; from txn.cli import main; main(); "
        "print(sorted({'typer', 'kio', 'confluent_kafka'} & sys.modules.keys()))"
    )
    words = ["topics", "list", "--bootstrap", closed]
    command = [sys.executable, "-c", program, *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "no topic\n[]\n"


def test_headers_whose_name_is_no_text_are_left_out_and_told_once(open_broker: str) -> None:
    """confluent-kafka cannot give them: `txn consume` ended with a traceback at each such topic."""
    create_topic(open_broker, "named")
    with RawConnection(open_broker) as wire:
        for _ in range(100):
            packed.produce(wire, packed.with_a_latin_1_header(), topic="named")
    code, out, err = run_txn("consume", "named", "--headers", "--bootstrap", open_broker)
    assert (code, out) == (0, "h=null\t1\n" * 100)
    assert err == (
        "txn: named-0 has a header at offset 0 whose name is no UTF-8. Such headers are left out\n"
    )
