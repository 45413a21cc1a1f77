"""Groups: their members, each member's assignment, and the committed offsets. Pure."""
