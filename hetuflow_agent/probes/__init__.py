"""Probes: the questions asked of daemons that run here."""
