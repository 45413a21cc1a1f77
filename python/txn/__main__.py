"""`python -m txn`: the command line."""

from txn.cli import main

main()
