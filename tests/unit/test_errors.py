"""Errors tell facts as sentences and as attributes with types."""

import ast
import importlib
import inspect
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

import txn
from txn import _core, errors

for module in (
    "demo.run",
    "demo.flights",
    "server.lifecycle.broker",
    "spark.errors",
    "spark.connector_jars",
):
    importlib.import_module(f"txn.{module}")

PYTHON = Path(__file__).parent.parent.parent / "python"


def subclasses(root: type[errors.TxnError]) -> Iterator[type[errors.TxnError]]:
    yield root
    for each in root.__subclasses__():
        yield from subclasses(each)


def declared(kind: type[errors.TxnError]) -> set[str]:
    return {name for each in kind.__mro__ for name in inspect.get_annotations(each)}


def raised_facts() -> Iterator[tuple[str, str, str]]:
    """Every (error class, fact, place) in the source, where the class is named."""
    names = {kind.__name__ for kind in subclasses(errors.TxnError)}
    for path in sorted(PYTHON.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
                name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
                if name in names:
                    for keyword in node.keywords:
                        if keyword.arg is not None:
                            yield name, keyword.arg, f"{path.name}:{node.lineno}"


def test_every_fact_of_an_error_is_declared_with_a_type() -> None:
    kinds = {kind.__name__: kind for kind in subclasses(errors.TxnError)}
    facts = list(raised_facts())
    assert len(facts) > 50
    assert [
        f"{name}.{fact} at {place}"
        for name, fact, place in facts
        if fact not in declared(kinds[name])
    ] == []


def test_every_error_of_the_tree_is_exported() -> None:
    here = {
        kind.__name__ for kind in subclasses(errors.TxnError) if kind.__module__ == "txn.errors"
    }
    assert here <= set(txn.__all__)


def test_the_tree_in_the_docstring_has_every_error() -> None:
    assert errors.__doc__ is not None
    for kind in subclasses(errors.TxnError):
        if kind.__module__ == "txn.errors":
            assert kind.__name__ in errors.__doc__


def test_facts_that_an_error_has_not_are_none() -> None:
    error = errors.RejectedError("no")
    assert (error.code, error.name, error.topic, error.partition) == (None, None, None, None)


def test_an_error_keeps_its_facts_over_processes() -> None:
    error = errors.AbortableError("late", topic="orders", code=47, open_ms=2, timeout_ms=1)
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.topic, again.code, again.open_ms) == ("late", "orders", 47, 2)
    assert again.action is errors.Action.ABORT_AND_REWIND


@pytest.mark.parametrize(
    "error",
    [
        _core.KafkaError("no node answers", 5, True),
        _core.LogRefusedError("no node answers", 56),
        _core.CorruptLogError("no node answers", "/data/a-0", 12),
    ],
)
def test_an_error_of_the_extension_prints_as_a_sentence(error: Exception) -> None:
    """The story: a user saw ('no node answers', 5, True)."""
    assert str(error) == "no node answers"
    assert str(pickle.loads(pickle.dumps(error))) == "no node answers"


def test_an_error_of_the_extension_without_arguments_prints() -> None:
    assert str(_core.KafkaError()) == ""
