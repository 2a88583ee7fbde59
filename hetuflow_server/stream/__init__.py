"""In-process hints and fan-out: polling is the truth, these only make it quick."""
