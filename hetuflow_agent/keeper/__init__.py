"""The keeper: a small process that starts commands, watches them and outlives the agent.

The keeper knows neither servers nor claims. It starts each command of the agent under the key and at the
instant that the agent names, and ends commands that exceed their timeout, lease or limits. It keeps a record
of every end until the agent has confirmed it. An agent that was killed or replaced finds its work here again.

    startup.py      starts the keeper of a folder
    service.py      the event loop, and the connections of agents
    wire.py         the protocol between agent and keeper
    tasks.py        all tasks, from the intent to the end
    task.py         one task, and the message that reports its state
    slots.py        which tasks have a slot, and when their states are sent
    journal.py      the records on disk: intents, processes, ends
    spawning.py     starts the process of a command
    descendants.py  finds and kills all processes of a task
    limits.py       sets what a task may use: time slices, CPUs, memory
    cgroups.py      control groups, where they are available
    fencing.py      when a lease that was not renewed ends a process
    leftovers.py    ends the processes of a keeper that was killed
    guard.py        the process that does so if no other keeper comes
    agent_child.py  the agent as a child of the keeper, where the keeper is the first process
    folder_lock.py  one keeper per folder
    proc.py         reads /proc

The keeper imports the standard library only. It starts with `python -I -S`, in a few milliseconds and
megabytes, and does not depend on packages that are installed or replaced while it runs.
"""
