"""The consumer group protocol (KIP-848): its records, their fold, and the decisions. Pure."""
