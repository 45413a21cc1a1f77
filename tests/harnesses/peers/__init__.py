"""The peers of txn in tests: real Apache Kafka nodes, real Java clients, and a real PostgreSQL."""
