"""The system under test: PostgreSQL, servers, agents and what they run, each a process of its own."""
