"""The same requests to txn and to Apache Kafka, and their answers, field by field."""
