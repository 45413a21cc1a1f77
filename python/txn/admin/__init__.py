"""Reads and changes the topics, offsets, settings and groups of a running cluster."""
