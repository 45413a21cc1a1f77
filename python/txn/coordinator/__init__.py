"""The rules of transactions and groups. Pure: no clock, file, socket or thread."""
