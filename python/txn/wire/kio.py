"""The parts of kio that txn uses; everything else imports them from here.

kio imports Hypothesis where it is installed, to give it strategies for kio's types. Beside a test
suite this was a third of a broker's start. So the module of kio that does it is run here with an
import that does not find Hypothesis. A program that imported Hypothesis or kio before has kio as it
is, with the strategies.
"""

import builtins
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec, module_from_spec
from typing import Final

HYPOTHESIS: Final = "hypothesis"
IMPORTER: Final = "kio.static._phantom"
"""The module of kio that imports Hypothesis."""


def _import(
    name: str,
    globals: Mapping[str, object] | None = None,
    locals: Mapping[str, object] | None = None,
    fromlist: Sequence[str] = (),
    level: int = 0,
) -> object:
    if name.partition(".")[0] == HYPOTHESIS:
        raise ModuleNotFoundError(f"txn loads kio without {HYPOTHESIS}", name=name)
    return __import__(name, globals, locals, fromlist, level)


def _load_importer() -> None:
    """Run `IMPORTER` without Hypothesis; a kio that has no such module is left as it is."""
    if HYPOTHESIS in sys.modules or IMPORTER in sys.modules:
        return
    spec = find_spec(IMPORTER)
    if spec is None or spec.loader is None:
        return
    module = module_from_spec(spec)
    module.__dict__["__builtins__"] = {**vars(builtins), "__import__": _import}
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
    "entity_reader",
    "load_request_schema",
    "load_response_schema",
    "readers",
    "schema_name_map",
]
