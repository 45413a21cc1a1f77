"""The client of a running cluster, txn's or Apache Kafka's.

`brokers` sends one request to one broker. `source` asks a whole cluster for the `facts` about
transactions and for those about `groups`; `fetched` reads the batches of a Fetch answer.
"""
