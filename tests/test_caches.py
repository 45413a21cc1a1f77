"""Each cache of the broker is bounded in bytes, for any requests of strangers.

A cache of encoded partition sets, whose keys clients chose, kept 2.5 GB after 1,100 small requests.
Interned texts stay for ever on CPython 3.12: client ids, principals and hosts were.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import txn

PACKAGE: Final = Path(txn.__file__).parent
BROKER: Final = (
    *("broker", "coordinator", "metadata", "partition", "security", "server", "storage", "wire"),
    *("access", "clock.py", "config", "errors.py", "forks.py", "logs.py", "printable.py"),
)

BOUNDED: Final = {
    "broker/apis/txn.py": {
        "_added_alike": "256 answers with 32 partitions of existing topics",
        "_offsets_added": "an error code and a version",
        "_ended": "an error code and a version",
    },
    "coordinator/transaction/records.py": {
        "_encode_few": "1,024 sets of 16 partitions of existing topics",
        "_encode_usual_tagged": "five numbers",
        "_usual_tagged": "64 bytes",
    },
    "metadata/record_encoding.py": {
        "_place": "the last record alone",
        "_read_place": "the last record alone",
    },
    "security/acl_hosts.py": {
        "network_of": "4,096 texts of 64 characters",
        "_short_address": "4,096 texts of 64 characters",
    },
    "server/loop/requests.py": {
        "_parts_of_request": "a served version of an API",
    },
    "wire/plain_bodies.py": {"_parts_of_schema": "a schema of the protocol"},
    "wire/encoding.py": {"structure_writer": "a schema of the protocol"},
    "wire/hashing.py": {
        "_short_hash": "4,096 names of 256 characters",
        "_long_hash": "16 names of 32 KB",
    },
    "wire/messages.py": {
        "is_flexible": "a served version of an API",
        "has_flexible_header": "a served version of an API",
        "_response_encoder": "a served version of an API",
        "_entry_schema": "a served version of an API",
        "_begins_with_throttle_time": "a served version of an API",
    },
    "wire/requests.py": {"_values_of": "a class of bodies"},
    "wire/schemas.py": {
        "request_schema": "a served version of an API",
        "response_schema": "a served version of an API",
    },
    "wire/varint.py": {"unsigned_varint": "1,024 numbers"},
}
"""Every function of the broker that remembers its results, and the most that it remembers."""

REMEMBERING: Final = {"cache", "lru_cache"}


def modules() -> Iterator[Path]:
    for name in BROKER:
        place = PACKAGE / name
        yield from [place] if place.is_file() else sorted(place.rglob("*.py"))


def _is_remembering(node: ast.expr) -> bool:
    called = node.func if isinstance(node, ast.Call) else node
    name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
    return name in REMEMBERING


def _is_made_remembering(node: ast.expr) -> bool:
    """`lru_cache(maxsize=16)(function)`."""
    return isinstance(node, ast.Call) and _is_remembering(node.func)


def caches_in(module: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if any(map(_is_remembering, node.decorator_list)):
                yield node.name
        elif isinstance(node, ast.Assign) and _is_made_remembering(node.value):
            yield from (each.id for each in node.targets if isinstance(each, ast.Name))


def test_the_bound_of_every_cache_of_the_broker_is_known() -> None:
    found = {str(module.relative_to(PACKAGE)): set(caches_in(module)) for module in modules()}
    assert {path: names for path, names in found.items() if names} == {
        path: set(names) for path, names in BOUNDED.items()
    }


def test_the_broker_interns_no_text() -> None:
    interning = [
        str(module.relative_to(PACKAGE))
        for module in modules()
        for node in ast.walk(ast.parse(module.read_text()))
        if isinstance(node, ast.alias | ast.Attribute)
        and (node.name if isinstance(node, ast.alias) else node.attr) == "intern"
    ]
    assert interning == []
