"""A test that expects an error of a wide class says which one.

`pytest.raises(TxnError)` alone passes for every other fault as well, a mistake of the test among
them. So it did in an example of docs/testing.md: a call before the fault was refused, and the fault
was never played. An error of the classes of `WIDE` is expected with `match`, or is kept by `as` and
looked at.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from markdown_it import MarkdownIt

ROOT: Final = Path(__file__).parent.parent

WIDE: Final = {
    *("AssertionError", "AttributeError", "BaseException", "Exception", "OSError", "RuntimeError"),
    *("TypeError", "ValueError"),
    *("KafkaError", "KafkaException", "Py4JJavaError", "PySparkException"),
    *("ConfigError", "RejectedError", "StorageError", "StreamingQueryException", "TxnError"),
}


def texts() -> dict[str, str]:
    """The Python of each program and page, by its path."""
    found = {
        path: path.read_text()
        for tree in ("tests", "examples", "benches")
        for path in (ROOT / tree).rglob("*.py")
    }
    pages = (
        path for tree in ("docs", "deploy", "examples") for path in (ROOT / tree).rglob("*.md")
    )
    for page in (*ROOT.glob("*.md"), *pages):
        tokens = MarkdownIt().parse(page.read_text())
        found[page] = "\n".join(each.content for each in tokens if each.info == "python")
    return {str(path.relative_to(ROOT)): text for path, text in found.items()}


def wide(tree: ast.AST) -> Iterator[str]:
    """Yield each `raises` that takes any error of a wide class."""
    items = (item for node in ast.walk(tree) if isinstance(node, ast.With) for item in node.items)
    for item in items:
        call = item.context_expr
        if not isinstance(call, ast.Call) or ast.unparse(call.func) != "pytest.raises":
            continue
        (expected,) = call.args
        classes = expected.elts if isinstance(expected, ast.Tuple) else [expected]
        names = {ast.unparse(each).rpartition(".")[2] for each in classes}
        if names & WIDE and not call.keywords and item.optional_vars is None:
            yield ast.unparse(call)


def test_no_error_of_a_wide_class_is_expected_without_its_text() -> None:
    found = {path: list(wide(ast.parse(text))) for path, text in texts().items()}
    assert {path: expected for path, expected in found.items() if expected} == {}


def test_such_an_expectation_is_found() -> None:
    program = "with pytest.raises((txn.TxnError, ZeroDivisionError)), block(producer):\n    pass\n"
    assert list(wide(ast.parse(program))) == ["pytest.raises((txn.TxnError, ZeroDivisionError))"]
