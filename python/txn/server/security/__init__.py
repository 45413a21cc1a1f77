"""Certificates of listeners, and log-ins of clients."""
