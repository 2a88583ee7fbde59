"""The pieces of `hetuflow dev` around the server: its folder, its agent, its watchman."""
