"""`txn configs` and `txn cluster` tell and change the same of txn and of Apache Kafka."""

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from support.clients import WAIT_S, create_topic
from support.command_line import run_txn

Unique = Callable[[str], str]


@pytest.fixture
def topic(bootstrap: str, unique: Unique) -> str:
    name = unique("orders")
    create_topic(bootstrap, name)
    return name


def told(bootstrap: str, *words: object) -> Any:
    code, out, err = run_txn(*words, "--json", "--bootstrap", bootstrap)
    assert (code, err) == (0, "")
    return json.loads(out)


def await_default(bootstrap: str, name: str, value: str | None) -> None:
    """Wait until a default has a value: a broker of Kafka learns of it a moment later."""
    ends_s = time.monotonic() + WAIT_S
    known = None
    while known is None or known.get(name) != value:
        assert time.monotonic() < ends_s, known
        found = told(bootstrap, "configs", "describe", "--all-brokers")
        known = {each["name"]: each["value"] for each in found}


def overrides(bootstrap: str, topic: str) -> dict[str, str]:
    found = told(bootstrap, "configs", "describe", "--topic", topic)
    return {each["name"]: each["value"] for each in found}


def test_a_setting_of_a_topic_is_set_seen_and_removed(bootstrap: str, topic: str) -> None:
    of_topic = ("--topic", topic)
    assert overrides(bootstrap, topic) == {}
    values = ("retention.ms=3600000", "cleanup.policy=compact,delete")
    done = told(bootstrap, "configs", "set", *values, *of_topic)
    assert done == {
        "kind": "topic",
        "name": topic,
        "configs": {"retention.ms": "3600000", "cleanup.policy": "compact,delete"},
        "result": "set",
    }
    assert overrides(bootstrap, topic) == done["configs"]
    (one,) = told(bootstrap, "configs", "describe", "retention.ms", *of_topic)
    assert one == {
        "name": "retention.ms",
        "value": "3600000",
        "source": "topic",
        "sensitive": False,
        "read_only": False,
    }
    told(bootstrap, "configs", "remove", "retention.ms", *of_topic)
    assert overrides(bootstrap, topic) == {"cleanup.policy": "compact,delete"}


def test_a_dry_run_changes_no_setting(bootstrap: str, topic: str) -> None:
    words = ("configs", "set", "retention.ms=5", "--topic", topic, "--dry-run")
    assert told(bootstrap, *words)["result"] == "would be set"
    assert overrides(bootstrap, topic) == {}


def test_all_shows_the_settings_that_nobody_has_set(bootstrap: str, topic: str) -> None:
    found = told(bootstrap, "configs", "describe", "--all", "--topic", topic)
    known = {each["name"]: each["value"] for each in found}
    assert known["cleanup.policy"] == "delete"
    assert len(known) > 20


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("set", "retenton.ms=5"), 2, "has no setting 'retenton.ms'; did you mean retention.ms?"),
        (("describe", "retenton.ms"), 2, "did you mean retention.ms?"),
        (("remove", "nothing.like.it"), 2, "has no setting 'nothing.like.it'"),
        (("set", "retention.ms=long"), 1, "INVALID_CONFIG"),
        (("set", "retention.ms"), 2, "give NAME=VALUE"),
        (("set", "retention.ms=5", "--broker", "1"), 2, "give one of --topic, --broker"),
    ],
)
def test_a_setting_that_does_not_fit_is_told_in_one_line(
    words: tuple[str, ...], code: int, said: str, bootstrap: str, topic: str
) -> None:
    given = ("configs", *words, "--topic", topic, "--bootstrap", bootstrap)
    found, out, err = run_txn(*given)
    assert (found, out, err.count("\n")) == (code, "", 1)
    assert said in err


def test_brokers_are_named_with_their_settings(bootstrap: str) -> None:
    cluster = told(bootstrap, "cluster", "describe")
    (broker,) = cluster["brokers"]
    assert f"{broker['host']}:{broker['port']}" == bootstrap.replace("localhost", broker["host"])
    assert len(cluster["cluster_id"]) == 22
    found = told(bootstrap, "configs", "describe", "--all", "--broker", broker["id"])
    known = {each["name"]: each for each in found}
    assert known["log.retention.hours"]["value"] == "168"
    wrong = run_txn("configs", "describe", "--broker", 77, "--bootstrap", bootstrap)
    assert wrong[::2] == (2, f"txn: there is no broker 77; the brokers here are: {broker['id']}\n")
    plain = run_txn("cluster", "describe", "--bootstrap", bootstrap)[1]
    assert plain.startswith(f"cluster {cluster['cluster_id']}: ")


def test_the_default_of_all_brokers_is_set_and_removed(bootstrap: str) -> None:
    told(bootstrap, "configs", "set", "log.cleaner.threads=2", "--all-brokers")
    await_default(bootstrap, "log.cleaner.threads", "2")
    told(bootstrap, "configs", "remove", "log.cleaner.threads", "--all-brokers")
    await_default(bootstrap, "log.cleaner.threads", None)
