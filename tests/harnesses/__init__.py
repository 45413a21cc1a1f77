"""Programs that tests run beside a broker: the black box, stops, other brokers, other suites."""
