"""Previews: the next fires of a schedule."""
