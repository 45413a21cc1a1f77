"""Columns in the framing of a schema registry: Avro, JSON Schema and Protobuf, by Arrow.

| file | it has |
|---|---|
| `columns.py` | `from_registry` and `to_registry`, the functions of a query |
| `framing.py` | the magic byte, the id of a schema, and the indexes of a message of Protobuf |
| `registry.py` | the client of each worker, and its caches |
| `avro.py`, `json_schema.py`, `protobuf.py` | its type in Spark, decoding and encoding |

The driver reads the schema of a subject once, for the type of the column. A worker reads the schema
of each id once. No package of the JVM is needed; the extra `registry` is, on the workers too.
"""
