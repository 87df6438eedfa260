"""Whether the long forms of the long proofs were asked for."""

import os

LONG = bool(os.environ.get("POSTROOM_LONG_TESTS"))
"""``POSTROOM_LONG_TESTS=1``: storms, matrices and crowds at full size."""
