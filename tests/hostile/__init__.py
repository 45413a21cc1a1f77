"""Tests that would catch a liar: attacks beside a sound client, and mutated requests."""
