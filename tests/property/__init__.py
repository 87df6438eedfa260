"""Tests that hold for every input, not only for chosen ones."""
