"""What Hetuflow does, measured from outside."""
