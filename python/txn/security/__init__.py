"""Listeners, principals and sessions: where a request came from, and on whose behalf."""
