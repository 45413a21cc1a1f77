"""The same requests to txn and to Apache Kafka 4.2, and their answers, field by field."""
