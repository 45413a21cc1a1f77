"""Bytes on the wire and in the log: messages, versions, schemas."""
