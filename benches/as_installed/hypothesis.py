"""Not there, as for everybody who only installs txn: kio loads hypothesis where it finds it.

On the path of the brokers that are measured, so that their start and memory are a user's.
"""

raise ImportError("hypothesis is hidden from brokers that are measured")
