"""Servers that the tests talk to over real sockets, on 127.0.0.1 only."""
