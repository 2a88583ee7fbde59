"""The server: REST API, agent gateway, leader and owner loops, on one PostgreSQL."""
