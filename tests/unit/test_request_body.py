"""A request is made with keywords; the methods that all classes share tell its fields."""

import pytest

from txn.wire.requests import request_body


@request_body
class Asked:
    topic: str
    timeout_ms: int = 7


@request_body
class Told:
    topic: str
    timeout_ms: int = 7


def test_an_absent_field_has_its_default() -> None:
    assert Asked(topic="orders").timeout_ms == 7
    assert Asked(topic="orders", timeout_ms=9).timeout_ms == 9


def test_requests_are_equal_by_class_and_fields() -> None:
    assert Asked(topic="orders") == Asked(topic="orders", timeout_ms=7)
    assert Asked(topic="orders") != Asked(topic="sales")
    told: object = Told(topic="orders")
    assert Asked(topic="orders") != told


def test_equal_requests_have_one_answer_in_a_cache() -> None:
    answers = {Asked(topic="orders"): "first"}
    assert answers[Asked(topic="orders", timeout_ms=7)] == "first"
    assert Asked(topic="sales") not in answers


def test_a_request_shows_its_fields() -> None:
    assert repr(Asked(topic="orders")) == "Asked(topic='orders', timeout_ms=7)"


def test_a_request_has_the_declared_fields_and_no_others() -> None:
    with pytest.raises(TypeError, match="Asked is made without topic"):
        Asked()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="Asked has no field partition"):
        Asked(topic="orders", partition=1)  # type: ignore[call-arg]
    with pytest.raises(AttributeError, match="no attribute 'partition'"):
        Asked(topic="orders").partition = 1  # type: ignore[attr-defined]
