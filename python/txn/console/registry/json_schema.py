"""Compares JSON with a JSON Schema of a registry. No `$ref` makes it ask any other server."""

import json
from typing import Any, Final

from jsonschema import Draft7Validator
from jsonschema.exceptions import best_match
from jsonschema.validators import validator_for
from jsonschema_specifications import REGISTRY as SPECIFICATIONS
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT7

SCHEMAS_MAX: Final = 100
"""The most schemas that one schema may refer to."""

REASON_CHARS: Final = 200


def fault_of(payload: bytes, schema: Any, client: Any) -> str | None:
    """The reason that JSON does not fit a schema; None if it does.

    Args:
        payload: The JSON.
        schema: The schema, as the client of the registry has it.
        client: It fetches the schemas to which it refers, by subject and version.

    Raises:
        ValueError: the schema is no JSON, or refers to one that the registry does not name.
    """
    contents = json.loads(schema.schema_str)
    # Registry() retrieves nothing. jsonschema's default would ask any address.
    known: Registry[Any] = _with_references(SPECIFICATIONS, schema, client, set())
    validator = validator_for(contents, default=Draft7Validator)(contents, registry=known)
    try:
        value = json.loads(payload)
    except ValueError:
        return "It is no JSON, and its schema is JSON Schema"
    error = best_match(validator.iter_errors(value))
    if error is None:
        return None
    return f"It does not fit the schema: {str(error.message)[:REASON_CHARS]}"


def _with_references(
    known: "Registry[Any]", schema: Any, client: Any, names: set[str]
) -> "Registry[Any]":
    for each in schema.references or ():
        if each.name in names:
            continue
        names.add(each.name)
        if len(names) > SCHEMAS_MAX:
            raise ValueError(f"it refers to more than {SCHEMAS_MAX} schemas")
        found = client.get_version(each.subject, each.version, True).schema
        known = _with_references(known, found, client, names)
        contents = json.loads(found.schema_str)
        resource = Resource.from_contents(contents, default_specification=DRAFT7)
        known = known.with_resource(each.name, resource)
    return known
