"""The parts of `txn.admin.Cluster`, one for each noun of the command line."""
