"""The failure drill: what goes wrong in production is made to go wrong here first.

Each drill breaks one thing on purpose (a process is killed, an answer is lost, a lease
lapses under its owner) and compares what happened with what has to happen. The dispatcher
that it plays against is the real one, on the real kind of database, with the times of the
user's own configuration; only the providers are fakes, and the data is scratch.

``setup``     what a rehearsal takes from the configuration, for this process and its children
``scratch``   a schema or file of its own, gone at the end
``fakes``     providers with a ledger of what they took, and faults to order
``interruption``   Ctrl-C and SIGTERM
``stage``, ``tables``   the database, the clock and the dispatchers of one rehearsal
``drill``, ``drills_*``   what a drill is; the drills, one function each
``child``, ``children``   processes that exist to be killed or stopped
``live``      one drill with the user's own provider
``runner``, ``report``    play them, and tell
"""
