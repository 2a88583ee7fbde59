"""HTTP for tests: routes, web servers, certificates."""
