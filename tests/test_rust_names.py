"""A name of a Rust type has one meaning in the workspace.

A reader who looks up `Damage` finds one definition, and no second one of another crate.
"""

import re
from collections import defaultdict
from pathlib import Path

RUST = Path(__file__).parent.parent / "rust"

DEFINITION = re.compile(
    r"^ *(?:pub(?:\(\w+\))? )?(?:struct|enum|union|trait|type) ([A-Z]\w*)", re.MULTILINE
)

OF_STD = {"Item", "Target"}
"""Associated types that traits of the standard library ask for."""

WRAPPED = {"Fetch", "Server", "Writer"}
"""Classes of the extension that hold the type of the same name, under Python's name for it."""

SAME_THING = {"Client", "Transport"}
"""A client of the broker: the crate, and the raw one of `txn-net`'s tests. A socket with or without
TLS: the client's blocks, the broker's does not."""

TWO_PROTOCOLS = {"Handshake"}
"""The answer to SaslHandshake in the client, and the progress of TLS in the broker."""


def test_a_rust_type_is_defined_once() -> None:
    places = defaultdict(list)
    for path in sorted(RUST.rglob("*.rs")):
        for name in DEFINITION.findall(path.read_text()):
            places[name].append(str(path.relative_to(RUST)))
    assert len(places) > 400, "the pattern finds the definitions"
    several = {name: paths for name, paths in places.items() if len(paths) > 1}
    assert several.keys() <= OF_STD | WRAPPED | SAME_THING | TWO_PROTOCOLS, several
