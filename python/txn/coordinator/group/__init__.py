"""Groups: who is a member, what each member was assigned, and which offsets are committed. Pure."""
