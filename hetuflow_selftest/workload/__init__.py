"""What the system is given to do while it is tormented."""
