"""Ships what tasks print: byte ranges of the files they write to, compressed, in order."""
