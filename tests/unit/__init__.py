"""Tests that need no database and no network."""
