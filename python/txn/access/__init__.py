"""How a client reaches a secured cluster: it reads certificate files and fetches tokens here."""
