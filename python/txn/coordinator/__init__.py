"""Transactions and groups. Pure."""
