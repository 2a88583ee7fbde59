"""Placement: which agent may take which work."""
