"""Secrets of a client that librdkafka's texts repeat after a broker or an endpoint."""

import base64
import logging
from typing import Any

import pytest
from confluent_kafka import KafkaError

from txn.client.library_log import LibraryLog
from txn.client.redaction import Redaction
from txn.security.client_names import SECRETS

SECRET = "hunter2"
TOKEN = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhbm4ifQ.c2lnbmF0dXJl"
OPAQUE = "ya29." + "0123456789" * 80


@pytest.mark.parametrize("name", sorted(SECRETS))
def test_every_secret_of_the_settings_is_left_out(name: str) -> None:
    redaction = Redaction({name: SECRET, "sasl.username": "ann"})
    assert redaction.text(f"ann has no {SECRET}, or {SECRET}") == "ann has no …, or …"


def test_an_absent_or_empty_secret_leaves_a_text_as_it_is() -> None:
    redaction = Redaction({"sasl.password": None, "ssl.key.password": ""})
    assert redaction.text("None is here") == "None is here"


@pytest.mark.parametrize(
    ("secret", "said", "shown"),
    [
        ("a", "no: a bad name at data-a.example", "no: … bad name at data-a.example"),
        ("a", "password 'a' of ann is bad", "password '…' of ann is bad"),
        ("a", "user=ann&password=a", "user=ann&password=…"),
        ("a", "\0ann\0a", "\0ann\0…"),
        (
            "kafka",
            "kafka:9092 and ssl://kafka refuse kafka.",
            "kafka:9092 and ssl://kafka refuse ….",
        ),
        ("$1.", "refused: $1.", "refused: …"),
    ],
)
def test_a_short_secret_is_left_out_where_it_stands_alone(
    secret: str, said: str, shown: str
) -> None:
    """A password of one letter left no word of a message as it was."""
    assert Redaction({"sasl.password": secret}).text(said) == shown


def test_a_secret_of_eight_characters_is_left_out_inside_a_word() -> None:
    assert Redaction({"sasl.password": "hunter22"}).text("xhunter22x") == "x…x"
    assert Redaction({"sasl.password": SECRET}).text(f"x{SECRET}x") == f"x{SECRET}x"


def test_the_longest_secret_goes_first() -> None:
    redaction = Redaction({"sasl.password": SECRET, "ssl.key.password": f"{SECRET}-long"})
    assert redaction.text(f"no {SECRET}-long") == "no …"


def test_a_clients_secret_is_left_out_as_it_goes_over_the_wire() -> None:
    pair = {"sasl.oauthbearer.client.id": "me", "sasl.oauthbearer.client.secret": "a b&c"}
    header = base64.b64encode(b"me:a b&c").decode()
    said = Redaction(pair).text(f"Basic {header} or client_secret=a+b%26c")
    assert said == "Basic … or client_secret=…"


def test_the_tokens_of_a_programs_function_are_left_out() -> None:
    tokens = iter(["first-token", "second-token"])
    settings: dict[str, Any] = {"oauth_cb": lambda config: (next(tokens), 9.0, config)}
    redaction = Redaction(settings)
    redaction.watch(settings)
    assert settings["oauth_cb"]("principal") == ("first-token", 9.0, "principal")
    settings["oauth_cb"]("")
    assert redaction.text("no first-token, second-token") == "no …, …"


def test_a_function_that_raises_or_returns_no_token_stays_as_it_is() -> None:
    settings: dict[str, Any] = {"oauth_cb": lambda _: None}
    redaction = Redaction(settings)
    redaction.watch(settings)
    assert settings["oauth_cb"]("") is None
    settings = {"oauth_cb": int}
    redaction.watch(settings)
    with pytest.raises(ValueError, match="invalid literal"):
        settings["oauth_cb"]("x")


def test_a_token_that_librdkafka_fetches_itself_is_known_by_its_form() -> None:
    assert Redaction({}).text(f"no {TOKEN} (after 0ms)") == "no … (after 0ms)"


def test_a_token_that_librdkafka_has_cut_off_is_left_out() -> None:
    """Its errors have 512 bytes; a longer token is there in part."""
    settings: dict[str, Any] = {"oauth_cb": lambda _: (OPAQUE, 9.0)}
    redaction = Redaction(settings)
    redaction.watch(settings)
    settings["oauth_cb"]("")
    assert redaction.text(f"no {OPAQUE[:400]} (after 0ms)") == "no … (after 0ms)"
    assert Redaction({}).text(f"no {TOKEN[:30]}") == "no …"


def test_an_error_keeps_its_code_and_its_marks() -> None:
    redaction = Redaction({"sasl.password": SECRET})
    error = KafkaError(
        KafkaError._AUTHENTICATION,
        f"no {SECRET}",
        fatal=True,
        retriable=True,
        txn_requires_abort=True,
    )
    clean = redaction.error(error)
    assert (clean.code(), clean.str()) == (KafkaError._AUTHENTICATION, "no …")
    assert clean.fatal()
    assert clean.retriable()
    assert clean.txn_requires_abort()


def test_an_error_without_a_secret_is_itself() -> None:
    error = KafkaError(KafkaError._TRANSPORT, "down")
    assert Redaction({"sasl.password": SECRET}).error(error) is error


@pytest.mark.parametrize(
    "logger", [LibraryLog(), logging.getLogger("shop")], ids=["txn's", "the program's"]
)
def test_a_line_of_librdkafkas_log_goes_out_without_the_secret(
    logger: object, caplog: pytest.LogCaptureFixture
) -> None:
    settings: dict[str, Any] = {"sasl.password": SECRET, "logger": logger}
    Redaction(settings).watch(settings)
    with caplog.at_level(logging.INFO):
        settings["logger"].log(logging.ERROR, "%s [%s] %s", "FAIL", "rdkafka#1", f"no: {SECRET}")
    assert caplog.messages == ["FAIL [rdkafka#1] no: …"]
