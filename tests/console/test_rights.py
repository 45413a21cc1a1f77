"""Five users with different rights, each behind a log-in with a password of the cluster.

`root` may do everything, `reader` may look at topic orders and at group shop, `nobody` may nothing.
`writer` may write to topic secrets and read topic orders. `scribe` may only write to topic secrets.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import txn
from console.test_transactions_page import form_of
from support.clients import create_topic, plain_producer, send, transactional_producer
from support.command_line import run_txn
from support.console import Browser, ConsoleProcess
from support.late_batch import let_hang
from txn.config import STANDARD_AUTHORIZER

USERS = {name: f"{name}'s pass" for name in ("root", "reader", "writer", "scribe", "nobody")}
LISTENERS = {
    "listeners": "INSIDE://127.0.0.1:0,LOGIN://127.0.0.1:0",
    "listener.security.protocol.map": "INSIDE:PLAINTEXT,LOGIN:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256",
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": "User:root;User:ANONYMOUS",
}
ENTRIES = (
    ("reader", "--topic", "orders", "--operation", "Read"),
    ("reader", "--topic", "orders", "--operation", "Describe"),
    ("reader", "--group", "shop", "--operation", "Describe"),
    ("writer", "--topic", "secrets", "--operation", "Write"),
    ("writer", "--topic", "orders", "--operation", "Read"),
    ("scribe", "--topic", "secrets", "--operation", "Write"),
    ("writer", "--transactional-id", "held-by", "--operation", "Describe"),
)


@dataclass(frozen=True)
class Secured:
    """A console beside a cluster with users; it has the rights of root itself."""

    inside: str
    login: str
    console: ConsoleProcess
    broker: txn.Broker

    def user(self, name: str, password: str | None = None) -> tuple[Browser, int]:
        """A browser after the log-in of a user, and the status of its answer."""
        browser = self.console.stranger()
        form = {"username": name, "password": password or USERS[name], "next": "/topics"}
        return browser, browser.post("/login", form).status


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    place: Path = tmp_path_factory.mktemp("secured")
    with txn.Broker(place / "data", properties=LISTENERS, users=USERS) as broker:
        inside = broker.listeners["INSIDE"]
        for name in ("orders", "secrets"):
            create_topic(inside, name)
            send(plain_producer(inside), name, [b"of " + name.encode()])
        for name, *entry in ENTRIES:
            words = ("acls", "add", *entry, "--allow-principal", f"User:{name}")
            assert run_txn(*words, "--bootstrap", inside)[0] == 0
        config = place / "client.properties"
        config.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\n"
            f"bootstrap.servers={broker.listeners['LOGIN']}\n"
            f"sasl.username=root\nsasl.password={USERS['root']}\n"
        )
        console = ConsoleProcess("--command-config", config, "--write")
        yield Secured(inside, broker.listeners["LOGIN"], console, broker)
        assert console.stop() == 0


def test_a_user_logs_in_with_the_password_that_the_cluster_knows(secured: Secured) -> None:
    assert "User of the cluster" in secured.console.stranger().get("/login").text
    assert secured.user("reader")[1] == 303
    for name, password in (("reader", "wrong"), ("stranger", "pass"), ("", "x")):
        browser, status = secured.user(name, password)
        assert status == 403
        assert browser.get("/topics").status == 303


def test_each_user_sees_what_the_cluster_shows_this_user(secured: Secured) -> None:
    seen = {name: secured.user(name)[0].get("/topics").text for name in USERS}
    assert "secrets" in seen["root"]
    assert ("orders" in seen["reader"], "secrets" in seen["reader"]) == (True, False)
    assert ("orders" in seen["nobody"], "secrets" in seen["nobody"]) == (False, False)


def test_records_are_those_that_the_user_may_read(secured: Secured) -> None:
    root, reader, nobody = (secured.user(name)[0] for name in ("root", "reader", "nobody"))
    assert "of secrets" in root.get("/topics/secrets/0").text
    assert "of orders" in reader.get("/topics/orders/0").text
    for browser in (reader, nobody):
        for path in ("/topics/secrets/0", "/topics/secrets/0/0", "/topics/secrets/0/0/value"):
            answer = browser.get(path)
            assert answer.status in (403, 404)
            assert "of secrets" not in answer.text
        assert browser.get("/topics/secrets/search?value=of").status in (403, 404)


def test_a_refusal_names_the_right_that_the_user_lacks(secured: Secured) -> None:
    reader = secured.user("reader")[0]
    assert "Describe" in reader.get("/access").text
    assert "of the cluster" not in reader.get("/access/users").text
    settings = reader.get("/cluster/1")
    assert (settings.status, "DescribeConfigs" in settings.text) == (403, True)
    assert "User:reader" in secured.user("root")[0].get("/access").text
    assert "reader" in secured.user("root")[0].get("/access/users").text


def test_a_user_without_the_right_ends_no_transaction(secured: Secured) -> None:
    producer = transactional_producer(secured.inside, "guarded")
    producer.begin_transaction()
    send(producer, "orders", [b"guarded"])
    root, reader = secured.user("root")[0], secured.user("reader")[0]
    form = form_of(root.get("/transactions/abort?id=guarded").text)
    refused = reader.post("/transactions/do/abort", {**form, "csrf": reader.csrf()})
    assert refused.status in (403, 404)
    assert "Ongoing" in root.get("/transactions/one?id=guarded").text
    assert root.post("/transactions/do/abort", form).status == 303


def test_a_user_without_the_right_ends_no_transaction_that_hangs(secured: Secured) -> None:
    offset = let_hang(secured.broker, "orders", 1_000, b"late")
    address = f"/transactions/abort?topic=orders&partition=0&offset={offset}"
    root, reader = secured.user("root")[0], secured.user("reader")[0]
    page = reader.get(address)
    assert page.status == 200
    refused = reader.post("/transactions/do/abort", form_of(page.text))
    assert (refused.status, "CLUSTER_AUTHORIZATION_FAILED" in refused.text) == (403, True)
    plan = form_of(root.get(address).text)
    stolen = reader.post("/transactions/do/abort", {**plan, "csrf": reader.csrf()})
    assert (stolen.status, "Nothing was done" in stolen.text) == (403, True)
    assert root.post("/transactions/do/abort", plan).status == 303
    assert "No transaction holds readers back" in root.get("/readers/orders/0").text


def test_a_user_who_may_read_no_topic_is_not_told_that_no_transaction_holds_readers(
    secured: Secured,
) -> None:
    """The page said so above "0 partitions were asked"."""
    text = secured.user("scribe")[0].get("/").text
    assert "secrets-0 was left out" in text
    assert "No transaction holds readers back" not in text
    assert "It is not known whether a transaction holds readers back" in text


def test_the_first_page_is_there_for_a_user_who_may_see_little(secured: Secured) -> None:
    for name in USERS:
        browser = secured.user(name)[0]
        for path in ("/", "/transactions", "/topics", "/groups", "/activity", "/cluster"):
            assert browser.get(path).status == 200, (name, path)


def test_a_topic_that_the_user_may_not_read_is_left_out_and_the_others_are_told(
    secured: Secured,
) -> None:
    """Write lets a user see a topic, and Read alone its open transactions: the page was refused."""
    producer = transactional_producer(secured.inside, "held-by")
    producer.begin_transaction()
    send(producer, "orders", [b"open"])
    answer = secured.user("writer")[0].get("/")
    producer.abort_transaction()
    assert answer.status == 200
    assert "secrets-0 was left out" in answer.text
    assert "needs Read" in answer.text
    assert "held-by" in answer.text


@pytest.fixture
def torn(secured: Secured) -> Iterator[None]:
    """An open transaction of `held-by` in orders and secrets; `writer` may read orders alone."""
    producer = transactional_producer(secured.inside, "held-by")
    producer.begin_transaction()
    for topic in ("orders", "secrets"):
        send(producer, topic, [b"open"])
    yield
    producer.abort_transaction()


@pytest.mark.usefixtures("torn")
def test_a_transaction_is_shown_without_the_topics_that_the_user_may_not_read(
    secured: Secured,
) -> None:
    """The page was refused as a whole."""
    page = secured.user("writer")[0].get("/transactions/one?id=held-by")
    assert page.status == 200
    assert "secrets-0 was left out: the broker answers TOPIC_AUTHORIZATION_FAILED" in page.text
    assert "orders-0" in page.text
    assert "See what an abort would do" in page.text
    assert "left out" not in secured.user("root")[0].get("/transactions/one?id=held-by").text


def test_a_transaction_whose_events_the_user_may_not_see_is_not_said_to_have_none(
    secured: Secured,
) -> None:
    """After an abort the page said that no event is left, as it could not read the state."""
    producer = transactional_producer(secured.inside, "held-by")
    producer.begin_transaction()
    send(producer, "orders", [b"open"])
    producer.abort_transaction()
    text = secured.user("writer")[0].get("/transactions/one?id=held-by").text
    assert "No event of it is left in any log" not in text
    assert "No event of it can be shown" in text
    assert "__transaction_state could not be read" in text


@pytest.mark.usefixtures("torn")
def test_commands_leave_out_the_topics_that_the_user_may_not_read(
    secured: Secured, tmp_path: Path
) -> None:
    """`txn explain` and its relatives ended with the first topic that they might not read."""
    config = as_user(secured, "writer", tmp_path)
    note = "note: secrets-0 was left out: the broker answers TOPIC_AUTHORIZATION_FAILED"
    for words, told in (
        (("explain",), "orders-0: read_committed readers wait at offset"),
        (("transactions", "describe", "held-by"), "partition   secrets-0, left out"),
        (("transactions", "hanging"), "nothing hangs on 1 partition"),
    ):
        code, printed, errors = run_txn(*words, "--command-config", config)
        assert (code, errors.startswith(note), errors.count("\n")) == (2, True, 1), errors
        assert told in printed
    assert run_txn("explain", "secrets", "--command-config", config)[0] == 2
    properties = dict(line.split("=", 1) for line in config.read_text().splitlines())
    with txn.admin.connect(None, properties) as cluster:
        found = cluster.transactions.describe("held-by")
    assert [each.open.partition for each in found.holds] == [("orders", 0)]
    assert list(found.left_out) == [("secrets", 0)]


def test_a_user_who_may_read_no_topic_is_told_so_by_commands(
    secured: Secured, tmp_path: Path
) -> None:
    config = as_user(secured, "scribe", tmp_path)
    for words in (("explain",), ("transactions", "hanging")):
        code, printed, errors = run_txn(*words, "--command-config", config)
        assert (code, printed) == (2, "")
        assert "secrets-0 was left out" in errors


def test_a_command_of_a_user_names_a_file_of_the_user_and_not_that_of_the_console(
    secured: Secured,
) -> None:
    """The page showed `--command-config` of the console, with the rights of its own user."""
    browser = secured.user("reader")[0]
    for path in ("/topics", "/readers/orders", "/groups", "/transactions"):
        text = browser.get(path).text
        assert f"--bootstrap {secured.login} --command-config FILE" in text
        assert "client.properties" not in text
        assert "sasl.username=reader<br>sasl.password=…" in text
    text = secured.console.browser().get("/topics").text
    assert "client.properties" in text
    assert "sasl.password" not in text


def as_user(secured: Secured, name: str, place: Path) -> Path:
    """A file of properties for the commands of a user."""
    config = place / f"{name}.properties"
    config.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\n"
        f"bootstrap.servers={secured.login}\nsasl.username={name}\nsasl.password={USERS[name]}\n"
    )
    return config


def test_sessions_of_two_users_stay_apart(secured: Secured) -> None:
    """Connections are kept for the next request, and none is lent to another user."""
    root, reader = secured.user("root")[0], secured.user("reader")[0]
    for _ in range(3):
        assert "secrets" in root.get("/topics").text
        assert "secrets" not in reader.get("/topics").text


def test_dead_letters_are_read_and_redriven_with_the_rights_of_the_user(secured: Secured) -> None:
    root, reader = secured.user("root")[0], secured.user("reader")[0]
    page = root.get("/dead-letters?topic=orders").text
    assert "0:0" in page
    refused = reader.get("/dead-letters?topic=orders")
    assert refused.status == 403
    assert "GROUP_AUTHORIZATION_FAILED" in refused.text
    assert reader.get("/dead-letters?topic=secrets").status in (403, 404)
