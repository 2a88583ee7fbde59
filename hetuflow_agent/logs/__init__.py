"""Ships the output of tasks: byte ranges of their log files, compressed, in order."""
