"""What every test can ask for: the fixtures of the peers, and how Hypothesis draws."""

import os

from hypothesis import settings

pytest_plugins = ["peers.kafka"]

# CI plays the same histories each time, so that a red run says something about the change;
# every other run plays new ones.
settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("ci")
