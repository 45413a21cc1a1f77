"""Composes the pure parts into a broker; silent about I/O."""
