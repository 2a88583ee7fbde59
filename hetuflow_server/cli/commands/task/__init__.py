"""Commands about tasks and their attempts."""
