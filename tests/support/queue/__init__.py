"""The queue without a server: services, agents and claims."""
