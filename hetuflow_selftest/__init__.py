"""The self-test: a whole system on this machine, faults made on purpose, and an independent judge."""
