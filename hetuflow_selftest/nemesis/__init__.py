"""Who makes the faults: in an order drawn from the seed, one after the other, each undone before the next."""
