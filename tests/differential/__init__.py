"""The same requests to txn and to Apache Kafka 4.2, and what they answer, field by field."""
