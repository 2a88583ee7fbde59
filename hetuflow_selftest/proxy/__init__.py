"""What stands on every line between the parts: passes bytes on, or holds, refuses and swallows them."""
