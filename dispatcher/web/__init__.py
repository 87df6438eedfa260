"""What ``postroom web`` answers over HTTP. Needs the extra ``web`` (Starlette and uvicorn).

One process, one event loop, several listeners that have nothing in common but that. The public
one may be reached from anywhere, so it has few routes, each with its own proof of who asks
(``tick``: a bearer token). What only operators may see belongs on a listener of its own, never
on a route of this one.

- ``bearer``: is this the token? Pure.
- ``ticks``: what the process does when it is woken, and how much of it at once.
- ``tick``: ``POST /jobs/tick``.
- ``application``: routes become an application: JSON for errors, one line of log a request.
- ``listening``: sockets, limits of a connection, and the stop on a signal.
- ``service``: a configuration becomes all of this.

To add a listener: its routes, an application of them, and a ``Listener`` in ``service``.
"""
