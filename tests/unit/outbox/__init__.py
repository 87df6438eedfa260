"""Unit tests of the outbox package."""
