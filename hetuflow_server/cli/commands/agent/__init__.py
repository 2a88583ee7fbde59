"""`hetuflow agent …`."""
