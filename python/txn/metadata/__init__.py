"""Topics, settings and producer ids, as records and as their fold. Pure."""
