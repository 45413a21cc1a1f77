"""Start and stop of a broker, and the threads that work beside requests."""
