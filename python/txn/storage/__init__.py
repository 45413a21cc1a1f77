"""Stores partitions on disk or in memory."""
