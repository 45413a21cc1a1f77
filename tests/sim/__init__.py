"""Whole brokers and scripted clients on one thread, under a seed; see `sim.world`."""
