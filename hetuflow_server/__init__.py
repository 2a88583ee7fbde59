"""The server: REST API, agent gateway, leader and owner loops, on one PostgreSQL."""

import hetuflow_core  # noqa: F401 - finds modules of this package by their former paths
