"""What every HTTP surface shares: problem answers, request ids, the listening server."""
