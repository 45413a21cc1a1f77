"""The settings of a broker out of files, as Kafka's are written."""
