"""Composes the pure parts into a broker. It does no I/O itself: `txn.server` passes that in."""
