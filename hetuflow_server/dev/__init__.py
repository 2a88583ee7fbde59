"""The parts of `hetuflow dev` around the server: its folder, its agent and the restarter."""
