"""Check the wording of code and documents: `python -m tests.support.wording [--count] [PATH …]`."""
