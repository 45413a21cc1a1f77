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
from pkgutil import resolve_name
from typing import Final, cast

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

from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader, readers
from kio.static.constants import EntityType
from kio.static.protocol import RequestPayload, ResponsePayload

_REQUEST, _RESPONSE = EntityType.request, EntityType.response

_LATER: Final = {
    (18, 5, _REQUEST): "txn.wire.later.api_versions:ApiVersionsRequest",
    (18, 5, _RESPONSE): schema_name_map["api_versions"][4][EntityType.response],
    (28, 6, _REQUEST): "txn.wire.later.txn_offset_commit:TxnOffsetCommitRequest",
    (28, 6, _RESPONSE): "txn.wire.later.txn_offset_commit:TxnOffsetCommitResponse",
    (42, 3, _REQUEST): schema_name_map["delete_groups"][2][EntityType.request],
    (42, 3, _RESPONSE): "txn.wire.later.delete_groups:DeleteGroupsResponse",
    (88, 1, _REQUEST): schema_name_map["streams_group_heartbeat"][0][EntityType.request],
    (88, 1, _RESPONSE): "txn.wire.later.streams_groups:StreamsGroupHeartbeatResponse",
    (89, 1, _REQUEST): "txn.wire.later.streams_groups:StreamsGroupDescribeRequest",
    (89, 1, _RESPONSE): "txn.wire.later.streams_groups:StreamsGroupDescribeResponse",
    (93, 0, _REQUEST): "txn.wire.later.topology_descriptions:TopologyDescriptionUpdateRequest",
    (93, 0, _RESPONSE): "txn.wire.later.topology_descriptions:TopologyDescriptionUpdateResponse",
}
"""(API key, version, kind) → the schema of a version that kio lacks, here or as of a version that
has the same fields."""


def place_of_schema(api_key: int, api_version: int, kind: EntityType) -> str:
    """The module and the name of a schema, as `module:name`. Raises KeyError: there is none."""
    later = _LATER.get((api_key, api_version, kind))
    if later is not None:
        return later
    return schema_name_map[api_key_map[api_key]][api_version][kind]  # type: ignore[index]


def load_request_schema(api_key: int, api_version: int) -> type[RequestPayload]:
    """The schema of the requests of an API and version, a dataclass. Raises KeyError, OSError."""
    place = place_of_schema(api_key, api_version, _REQUEST)
    return cast("type[RequestPayload]", resolve_name(place))


def load_response_schema(api_key: int, api_version: int) -> type[ResponsePayload]:
    """The schema of the responses of an API and version, a dataclass. Raises KeyError, OSError."""
    place = place_of_schema(api_key, api_version, _RESPONSE)
    return cast("type[ResponsePayload]", resolve_name(place))


__all__ = [
    "EntityType",
    "builtins_with",
    "entity_reader",
    "load_request_schema",
    "load_response_schema",
    "place_of_schema",
    "readers",
]
