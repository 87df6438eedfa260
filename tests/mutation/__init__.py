"""Every guard is really taken out, and its test has to miss it."""
