"""`python -m hetuflow_agent`."""

from hetuflow_agent.cli import main

main()
