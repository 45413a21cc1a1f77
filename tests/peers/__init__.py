"""The peers txn is measured against: real Apache Kafka nodes and real Java clients."""
