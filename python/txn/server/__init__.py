"""The I/O shell around a broker node: threads, sockets, lifecycle."""
