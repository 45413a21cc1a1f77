"""`txn docs search` finds the page for a question in the first three, as users type questions."""

import pytest

from txn.manual.search import search

FIRST: int = 3

HANGS = ("how-to/end-a-hanging-transaction",)

QUESTIONS: dict[str, tuple[str, ...]] = {
    "my consumer is stuck and gets no messages": ("concepts/transactions", "overview", "how-to/*"),
    "what does ProducerFenced mean": ("errors/fenced",),
    "INVALID_PRODUCER_EPOCH": ("errors/fenced", "errors/codes"),
    "kafka transaction hangs how do I abort it": ("concepts/transactions", "cli", "how-to/*"),
    "how to run the broker in pytest": ("testing",),
    "simulate a crash of the broker in a test": ("testing",),
    "pyspark exactly once write to kafka": ("spark", "spark-examples", "how-to/*"),
    "spark structured streaming options": ("spark",),
    "commit answer lost, is my transaction committed?": ("errors/in-doubt",),
    "broker connection refused": ("errors/unreachable",),
    "disk is full what happens": ("settings", "errors/storage", "damage"),
    "corrupted log segment after power failure": ("damage", "errors/corrupt-log"),
    "enable TLS on the broker": ("security-broker", "security", "how-to/secure-a-broker"),
    "connect with SASL SCRAM password": ("security", "security-broker"),
    "ACL topic authorization failed": ("security-broker", "errors/codes", "errors/rejected"),
    "prometheus metrics endpoint": ("metrics",),
    "consumer group lag": ("metrics", "cli", "console"),
    "reset offsets of a consumer group": ("cli", "console"),
    "limit producer bandwidth": ("quotas",),
    "opentelemetry tracing spans": ("tracing",),
    "which kafka clients work": ("clients",),
    "move data directory to apache kafka": ("interchange",),
    "retention of a topic setting": ("settings", "reference/topic-settings"),
    "num.partitions default": ("reference/broker-settings", "settings"),
    "web UI for topics and records": ("console",),
    "dead letter queue for bad records in python": ("python-client",),
    "confluent-kafka producer migration": ("python-client", "how-to/*"),
    "asyncio with transactions": ("python-client",),
    "run as systemd service or docker container": ("deploy",),
    "multiprocessing fork producer": ("errors/forked",),
    "port already in use": ("errors/address",),
    "records larger than the maximum size": ("errors/rejected", "errors/codes", "settings"),
    "how fast is it compared to kafka": ("performance",),
    "what files are in the data directory": ("on-disk",),
    "log line txn.timed_out": ("errors/log-lines",),
    "stop broker safely": ("how-to/run-a-broker",),
    "what happens to open transactions when the broker restarts": ("how-to/run-a-broker",),
    "consumer gets nothing": HANGS,
    "consumer gets no records": HANGS,
    "my consumer shows nothing": HANGS,
    "last stable offset does not advance": HANGS,
    "lag is 0 but consumer gets nothing": (*HANGS, "metrics"),
    "consumer lag 0 but topic grows": HANGS,
    "install pytest": ("testing", "how-to/test-an-application"),
    "spark secured cluster": ("spark", "security"),
    "read_committed consumer stopped": HANGS,
}
"""A question, and the pages that answer it; one of them has to be among the first."""


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_finds_its_page_among_the_first_three(question: str) -> None:
    found = [each.page.name for each in search(question)]
    wanted = QUESTIONS[question]
    prefixes = tuple(each[:-1] for each in wanted if each.endswith("*"))
    assert [name for name in found[:FIRST] if name in wanted or name.startswith(prefixes)], found


@pytest.mark.parametrize("name", ["txn.timed_out", "log.damaged", "sync.failed"])
def test_the_name_of_a_log_line_finds_the_table_that_explains_it_first(name: str) -> None:
    assert search(name)[0].page.name == "errors/log-lines"


def test_there_are_at_least_thirty_questions() -> None:
    assert len(QUESTIONS) >= 30


def test_a_question_without_a_known_word_finds_nothing() -> None:
    assert search("xyzzy the of") == []
