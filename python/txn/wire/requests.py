"""Typed requests: one `request_body` per API, for all of its versions.

A request class has the fields of every version. A field that some version lacks has a default,
which is the default of Kafka's schema. `view` makes the subclass that kio decodes one version
into: kio makes an instance without a call of the class and sets one slot per field. So a typed
request costs as much as an entity of kio. The defaults of absent fields are attributes of the
view's class, which hide the slots.

Durations are whole milliseconds: kio's `timeout` is `timeout_ms` here.
"""

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from functools import cache
from operator import attrgetter
from types import MappingProxyType, NoneType
from typing import Final, TypeVar, dataclass_transform, get_args, get_origin, get_type_hints

from txn.wire.encoding import TIMES, own_name

KAFKA_NAME: Final = "kafka_name"

NUMBER_OF_TIME: Final = {
    "timedelta_i32": "int32",
    "timedelta_i64": "int64",
    "datetime_i64": "int64",
}

OF_SCHEMA: Final = ("__type__", "__version__", "__flexible__", "__api_key__", "__header_schema__")
"""Class attributes that kio reads."""

Request = TypeVar("Request")


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
def request_body(kind: type[Request]) -> type[Request]:
    """Make a class a dataclass with slots, made with keywords.

    To a type checker it is frozen. Its methods are the same for all: those that `dataclass`
    compiles for each class would take 20 ms of every start.
    """
    for name, method in METHODS.items():
        setattr(kind, name, method)
    return dataclass(init=False, repr=False, eq=False, match_args=False, slots=True)(kind)


def _fields(body: object) -> tuple[Field[object], ...]:
    assert is_dataclass(body)
    return fields(body)


def _init(self: object, **values: object) -> None:
    for each in _fields(self):
        if each.name not in values and each.default is MISSING:
            raise TypeError(f"{type(self).__qualname__} is made without {each.name}")
        setattr(self, each.name, values.pop(each.name, each.default))
    if values:
        raise TypeError(f"{type(self).__qualname__} has no field {', '.join(values)}")


@cache
def _values_of(kind: type) -> Callable[[object], object]:
    return attrgetter(*(each.name for each in fields(kind)))


def _values(body: object) -> object:
    return _values_of(type(body))(body)  # type: ignore[arg-type]


def _eq(self: object, other: object) -> bool:
    return type(self) is type(other) and _values(self) == _values(other)


def _hash(self: object) -> int:
    return hash(_values(self))


def _repr(self: object) -> str:
    shown = ", ".join(f"{each.name}={getattr(self, each.name)!r}" for each in _fields(self))
    return f"{type(self).__qualname__}({shown})"


METHODS: Final = {"__init__": _init, "__eq__": _eq, "__hash__": _hash, "__repr__": _repr}


def changed(request: Request, **values: object) -> Request:
    """A copy of a request with other values in some fields, which its version must have."""
    kind = type(request)
    copied = kind.__new__(kind)
    for each in _fields(request):
        setattr(copied, each.name, values.pop(each.name, getattr(request, each.name)))
    assert not values, f"{kind.__qualname__} of this version has no field {', '.join(values)}"
    return copied


def called(kafka_name: str) -> Mapping[str, str]:
    """Metadata of a field whose name in the schema differs from ours."""
    return {KAFKA_NAME: kafka_name}


def view(kind: type[Request], schema: type) -> type[Request]:
    """Make the subclass of a request class that has the fields of one version.

    Raises:
        AssertionError: the class lacks a field of the schema, or the schema lacks a field that
            has no default.
    """
    assert is_dataclass(kind), f"{kind.__qualname__} is no dataclass"
    names = {each.metadata.get(KAFKA_NAME, each.name): each.name for each in fields(kind)}
    our_hints, hints = get_type_hints(kind), get_type_hints(schema)
    described: dict[str, Field[object]] = {}
    types: dict[str, object] = {}
    for theirs in fields(schema):
        own = own_name(theirs)
        assert own in names, f"{kind.__qualname__} lacks {own} of {schema.__qualname__}"
        ours = copy(theirs)
        ours.name = names[own]
        kafka_type = theirs.metadata.get("kafka_type")
        if kafka_type in TIMES:
            metadata = {**theirs.metadata, "kafka_type": NUMBER_OF_TIME[kafka_type]}
            ours.metadata = MappingProxyType(metadata)
            types[ours.name] = int
        else:
            types[ours.name] = _viewed(hints[theirs.name], our_hints[ours.name])
        ours.type = types[ours.name]  # kio reads it here, not in the annotations
        described[ours.name] = ours
    namespace: dict[str, object] = {name: getattr(schema, name) for name in OF_SCHEMA}
    for absent in fields(kind):
        if absent.name not in described:
            assert absent.default is not MISSING, f"{kind.__qualname__}.{absent.name}: no default"
            namespace[absent.name] = absent.default
    namespace |= {
        "__slots__": (),
        "__module__": kind.__module__,
        "__annotations__": types,
        "__dataclass_fields__": described,
    }
    made = type(kind.__name__, (kind,), namespace)
    assert issubclass(made, kind)
    return made


def _viewed(hint: object, our_hint: object) -> object:
    """A schema's hint, with views in the place of its structures."""
    if isinstance(hint, type) and hasattr(hint, "__type__"):
        structure = _structure_in(our_hint)
        assert structure is not None, f"{our_hint} has no structure for {hint.__qualname__}"
        return view(structure, hint)
    if get_origin(hint) is tuple:
        return tuple[_viewed(get_args(hint)[0], our_hint), ...]  # type: ignore[misc]
    if NoneType in get_args(hint):
        inner = next(one for one in get_args(hint) if one is not NoneType)
        return _viewed(inner, our_hint) | None  # type: ignore[operator]
    return hint


def _structure_in(hint: object) -> type | None:
    if isinstance(hint, type) and is_dataclass(hint):
        return hint
    return next((found for one in get_args(hint) if (found := _structure_in(one))), None)
