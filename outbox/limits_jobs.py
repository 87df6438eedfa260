"""How long the parts of a run's identity may be, in characters."""

from __future__ import annotations

from typing import Final

JOB_CHARACTERS: Final = 100
SUBJECT_CHARACTERS: Final = 200
LABEL_CHARACTERS: Final = 200
RUN_KEY_CHARACTERS: Final = 200
"""A delivery of the run is named inside its key, which may have 255."""

SOURCE_CHARACTERS: Final = 128
EVENT_CHARACTERS: Final = 255
"""Of an event that is consumed once, and of where it comes from."""
