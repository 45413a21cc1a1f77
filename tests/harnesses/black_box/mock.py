"""librdkafka's mock cluster as a process: prints `listening on HOST:PORT`, serves until killed."""

import signal

from confluent_kafka import Producer


def main() -> None:
    """Serve."""
    holder = Producer({"bootstrap.servers": "none", "test.mock.num.brokers": 1, "log_level": 0})
    broker = next(iter(holder.list_topics(timeout=10).brokers.values()))
    print(f"listening on {broker.host}:{broker.port}", flush=True)
    signal.pause()


if __name__ == "__main__":
    main()
