"""`hetuflow user …`."""
