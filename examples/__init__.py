"""Programs that show how Postroom is meant to be used; none of them is part of the wheel."""
