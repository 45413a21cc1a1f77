"""Topics, offsets, settings and groups of a running cluster: asked for and changed."""
