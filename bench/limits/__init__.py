"""What the machine does without Hetuflow: the limit each figure is held against."""
