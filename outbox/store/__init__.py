"""Every SQL statement of the outbox, by topic, as named functions.

Functions take a synchronous :class:`sqlalchemy.Connection` and never commit;
the dispatcher calls them through ``AsyncConnection.run_sync``.
"""
