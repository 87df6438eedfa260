"""Tests, by tier; see CONTRIBUTING.md for what belongs where."""
