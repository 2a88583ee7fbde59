"""`python -m hetuflow_server` is `hetuflow`."""

from hetuflow_server.cli.main import main

main()
