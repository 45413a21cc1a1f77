"""Kafka's requests, answered: one file per area."""
