"""kio's schemas as descriptions: fields, types and defaults, without methods.

kio has a dataclass for each structure of each version, a thousand of those that are served. The
methods that `dataclass` compiles for one take almost a millisecond, two thirds of its loading.
Nothing calls them: requests and responses have classes of our own. So a module of kio is run here
with a `dataclass` that compiles none. The classes that kio itself loads are left as they are.
"""

import dataclasses
import os
import sys
from collections.abc import Callable
from functools import cache
from importlib.machinery import SourceFileLoader
from types import SimpleNamespace
from typing import Final, TypeVar

from txn.wire.kio import (
    EntityType,
    builtins_with,
    load_request_schema,
    load_response_schema,
    place_of_schema,
)

T = TypeVar("T")


@cache
def request_schema(api_key: int, api_version: int) -> type:
    """Describe the requests of an API and version. Raises OSError, KeyError."""
    return _described(api_key, api_version, EntityType.request) or load_request_schema(
        api_key, api_version
    )


@cache
def response_schema(api_key: int, api_version: int) -> type:
    """Describe the responses of an API and version. Raises OSError, KeyError."""
    return _described(api_key, api_version, EntityType.response) or load_response_schema(
        api_key, api_version
    )


def _described(api_key: int, api_version: int, kind: EntityType) -> type | None:
    """The schema from its own file; None where that is not to be found."""
    module, _, name = place_of_schema(api_key, api_version, kind).partition(":")
    package, *inner = module.split(".")
    (root,) = sys.modules[package].__path__
    path = os.path.join(root, *inner) + ".py"
    try:
        code = SourceFileLoader(module, path).get_code(module)
    except (FileNotFoundError, NotADirectoryError):  # kio is in an archive
        return None
    assert code is not None, f"{path} is a module"
    namespace: dict[str, object] = {"__name__": module, "__builtins__": _BUILTINS}
    exec(code, namespace)
    schema = namespace[name]
    assert isinstance(schema, type)
    return schema


def _dataclass(**_: bool) -> Callable[[type[T]], type[T]]:
    def described(schema: type[T]) -> type[T]:
        schema.__doc__ = schema.__doc__ or schema.__name__  # else it is made of a signature
        return dataclasses.dataclass(init=False, repr=False, eq=False, match_args=False)(schema)

    return described


_BUILTINS: Final = builtins_with(
    dataclasses=SimpleNamespace(dataclass=_dataclass, field=dataclasses.field)
)
