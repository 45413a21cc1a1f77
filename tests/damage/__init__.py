"""Damage to the files of a broker: it is refused by name and given up by name, or it is no loss."""
