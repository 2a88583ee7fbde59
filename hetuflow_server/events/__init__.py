"""Events, and the schedules that wait for them."""
