"""The parts of kio that txn uses; everything else imports them from here.

kio imports Hypothesis where it is installed, to give it strategies for kio's types. Beside a test
suite this was half of the CPU of a broker's start. So the module of kio that does it is run here
with an import that does not find Hypothesis. A program that imported Hypothesis or kio before has
kio as it is, with the strategies.
"""

import builtins
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec, module_from_spec
from typing import Final

IMPORTER: Final = "kio.static._phantom"
"""The module of kio that imports Hypothesis."""


def builtins_with(**modules: object) -> dict[str, object]:
    """The builtins for a module of kio that imports these instead; None: no such module."""

    def import_(
        name: str,
        globals: Mapping[str, object] | None = None,
        locals: Mapping[str, object] | None = None,
        fromlist: Sequence[str] = (),
        level: int = 0,
    ) -> object:
        top = name.partition(".")[0]
        if top not in modules:
            return __import__(name, globals, locals, fromlist, level)
        if modules[top] is None:
            raise ModuleNotFoundError(f"txn loads kio without {top}", name=name)
        return modules[top]

    return {**vars(builtins), "__import__": import_}


def _load_importer() -> None:
    """Run `IMPORTER` without Hypothesis; a kio that has no such module is left as it is."""
    if "hypothesis" in sys.modules or IMPORTER in sys.modules:
        return
    spec = find_spec(IMPORTER)
    if spec is None or spec.loader is None:
        return
    module = module_from_spec(spec)
    module.__dict__["__builtins__"] = builtins_with(hypothesis=None)
    spec.loader.exec_module(module)
    sys.modules.setdefault(IMPORTER, module)  # whole, as another thread may ask for it


_load_importer()

import kio.schema
from kio.index import load_request_schema, load_response_schema
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader, readers
from kio.static.constants import EntityType

(SCHEMAS,) = kio.schema.__path__
"""Where kio keeps its schemas."""

__all__ = [
    "SCHEMAS",
    "EntityType",
    "api_key_map",
    "builtins_with",
    "entity_reader",
    "load_request_schema",
    "load_response_schema",
    "readers",
    "schema_name_map",
]
