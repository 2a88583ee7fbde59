"""The agent: pulls task instances over HTTP, runs them, ships their logs."""
