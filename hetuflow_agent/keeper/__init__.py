"""The keeper: a small process that starts commands, watches them and outlives the agent.

It knows nothing of servers and claims. It starts what the agent tells it to, under the key and at the instant
the agent names; it ends what runs out of time or out of lease; it writes down how everything ended until the
agent has said that it knows. An agent that was killed or replaced finds its work here again.

    wire.py       what agent and keeper say to each other
    journal.py    what is on disk: intents, processes, ends
    record.py     one task of the keeper, and how it is told
    fencing.py    when a lease that nobody renews costs a process its life
    spawning.py   one process of a command
    family.py     everything a command has started, found and killed
    table.py      all tasks: from the intent to the end
    service.py    the event loop around them
    companion.py  the agent as the keeper's child, where the keeper is the first process
    cgroups.py    control groups, where there are some
    limits.py     how a task is held to what it may use
    cpus.py       which CPUs that are, where there are no control groups
    leftovers.py  what a keeper that was killed has left running
    guard.py      the process that ends it if nobody else does
    proc.py       what /proc tells

Only the standard library is imported here: the keeper starts with `python -I -S`, in a few milliseconds and
megabytes, and must not care what is installed anew beside it while it runs.
"""
