"""The way to a secured cluster: files read, tokens fetched, and given to a client."""
