"""Writes `txn/broker/apis/index.py` from the APIs that its modules declare; part of `make fmt`.

A start reads the index in the place of the modules, which take as long as a fifth of a start.
"""

from pathlib import Path
from pkgutil import iter_modules

from txn.broker import apis
from txn.broker.apis.table import area_of
from txn.wire.api_keys import ApiKey

INDEX = Path(*apis.__path__) / "index.py"
NO_AREAS = {"access", "api", "guards", "index", "table"}

HEAD = '''\
"""The APIs that each module declares, with their versions, for a start that loads none of them.

`make fmt` writes this file from the declarations.
"""

from collections.abc import Mapping
from typing import Final

from txn.wire.api_keys import ApiKey

APIS_BY_MODULE: Final[Mapping[str, Mapping[int, tuple[int, int]]]] = {
'''


def index() -> str:
    """The text of the index."""
    text = HEAD
    for module in sorted(found.name for found in iter_modules(apis.__path__)):
        if module not in NO_AREAS:
            text += f'    "{module}": {{\n'
            for key, api in sorted(area_of(module).apis.items()):
                text += f"        ApiKey.{ApiKey(key).name}: {api.versions},\n"
            text += "    },\n"
    return text + "}\n"


if __name__ == "__main__":
    INDEX.write_text(index())
