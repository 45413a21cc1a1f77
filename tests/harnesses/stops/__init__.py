"""The real broker, stopped between any two of its system calls that change files.

`tracer` runs it and stops it, `sure` knows the state that a power failure leaves, `life` is the
client and the judge, and `run` puts the three together.
"""
