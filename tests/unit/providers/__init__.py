"""Unit tests of the provider adapters and what they share."""
