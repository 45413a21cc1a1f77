"""Thousands of connections and of group members that come and go, on txn and on Apache Kafka.

`make load` runs it for each group protocol. Members are coroutines of this process over sockets of
their own. Each knows the partitions that it holds, so a partition with two holders is noticed.
"""
