"""Spawning, watching and killing of commands, with the standard library alone.

It runs inside the agent. It knows nothing of claims and servers, so that it can become a process of its own
that outlives the agent.
"""
