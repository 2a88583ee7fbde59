"""Background loops: each a `run_once() -> count` behind the shared shell."""
