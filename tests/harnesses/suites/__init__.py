"""Test suites that other people wrote for their own clients, run against txn or Apache Kafka.

`make peers` runs those whose releases carry their tests: segmentio/kafka-go, franz-go and
rskafka. Each comes from its registry through the ordinary tool, `go` or `cargo`, and goes below
`target/suites`. `expected.py` names every test that does not pass, with its reason.
"""
