"""Keys and values by the schemas of a registry: Avro, JSON Schema and Protobuf. It only reads.

A record of these formats begins with a zero byte and the number of its schema. Anybody who may
write to a topic chooses both, so a schema and a record may be made to cost much. `reading` asks a
process that `decoding` runs, with limits of time and memory. So the console loses no more than the
one page view.
"""
