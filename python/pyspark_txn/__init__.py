"""Lets Spark find txn: it imports every top-level module whose name begins with `pyspark_`."""

from txn.spark.datasource import TxnDataSource as DefaultSource

__all__ = ["DefaultSource"]
