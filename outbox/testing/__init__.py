"""The testing kit: for people who write jobs.

    def test_the_owner_gets_one_mail(postroom):          # the fixture of the pytest plugin
        postroom.run(website_audit, subject="site-42", period="2026-W48", crash_at="before-commit")
        assert postroom.enqueued() == []
        postroom.run(website_audit, subject="site-42", period="2026-W48")
        postroom.assert_enqueued(key="website-audit:site-42:2026-W48:owner", to="ana@example.org")

It is the real outbox on a real database: real tables, real transactions, a real claim and
lease. Only three things are the test's own: the time (:mod:`outbox.testing.clock`), the moment
of a crash (:mod:`outbox.testing.watched`), and the thread in which a job works
(:mod:`outbox.testing.performing`).

Without pytest: ``with Postroom(folder) as postroom``.
"""

from __future__ import annotations

from outbox.deliveries import Delivery
from outbox.testing.asserting import assert_enqueued
from outbox.testing.clock import Clock
from outbox.testing.crashing import CrashPoints
from outbox.testing.kit import Postroom
from outbox.testing.outcome import Outcome, RunRecord
from outbox.testing.points import CrashPoint
from outbox.testing.watched import Killed

__all__ = [
    "Clock",
    "CrashPoint",
    "CrashPoints",
    "Delivery",
    "Killed",
    "Outcome",
    "Postroom",
    "RunRecord",
    "assert_enqueued",
]
