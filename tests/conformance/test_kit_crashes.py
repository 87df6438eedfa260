"""The testing kit kills runs: anywhere, for certain, and with what a kill leaves behind."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

import outbox
from outbox.periods import daily
from outbox.states_jobs import RunState
from outbox.testing import Killed, Postroom
from outbox.testing.points import NAMES, Kind, first_word, kind_of, shown
from tests.conformance.django_rig import django_connection
from tests.conformance.kit_rig import AUDIT, KEY, audit, by_sqlite3, mail, opened, reports

DAY: dict[str, Any] = {"period": "2026-11-28"}


@pytest.fixture
def postroom(tmp_path: Path) -> Iterator[Postroom]:
    """The kit."""
    with opened(tmp_path) as kit:
        yield kit
    assert [t.name for t in threading.enumerate() if t.name.startswith("beat of")] == []


# --------------------------------------------------------------------------- #
# What a kill leaves
# --------------------------------------------------------------------------- #


@pytest.mark.parametrize(
    ("crash_at", "state", "written"),
    [
        ("after-claim", "running", 0),
        ("before-finish", "running", 0),
        ("before-commit", "running", 0),
        ("after-commit", "succeeded", 1),
        ("end", "succeeded", 1),
    ],
)
@pytest.mark.parametrize("how", ["declared", "plain"])
def test_a_killed_run_leaves_what_was_committed(
    postroom: Postroom, how: str, crash_at: str, state: str, written: int
) -> None:
    """All of its transaction or nothing, and the lease of a worker that did not give it back."""
    if how == "declared":
        killed = postroom.run(audit, **AUDIT, crash_at=crash_at)
    else:
        killed = postroom.run(by_sqlite3, postroom, crash_at=crash_at)
    assert killed.crashed_at is not None
    assert killed.crashed_at.is_called(crash_at)
    assert (killed.state, killed.returned) == (state, None)
    assert killed.explain().startswith(f"killed at {killed.crashed_at}; ")
    assert len(reports(postroom)) == len(postroom.enqueued()) == written
    [run] = postroom.runs()
    lease = None if crash_at == "end" else postroom.clock.now + timedelta(seconds=60)
    assert (run.lease_expires_at, run.attempts) == (lease, 1)


def test_a_killed_run_is_busy_until_its_lease_has_lapsed(postroom: Postroom) -> None:
    """Nobody gives it back: another start has to wait, and time is what it waits for."""
    postroom.run(by_sqlite3, postroom, crash_at="before-commit")
    said = by_sqlite3(postroom)
    assert "is running elsewhere since" in said
    postroom.clock.advance("60s")
    assert "is running elsewhere since" in by_sqlite3(postroom)
    postroom.clock.advance(timedelta(milliseconds=1))
    assert by_sqlite3(postroom) == "by-sqlite3:all:p1 is complete: 1 delivery pending"


def test_the_next_run_waits_for_the_lease_of_a_killed_one(postroom: Postroom) -> None:
    """``run`` lets that time pass, unless it is told not to wait."""
    postroom.run(audit, **AUDIT, crash_at="before-commit")
    killed_at = postroom.clock.now
    busy = postroom.run(audit, **AUDIT, wait=False)
    assert "is running elsewhere since 07:00:00Z (attempt 1" in busy.explain()
    assert postroom.clock.now == killed_at
    done = postroom.run(audit, **AUDIT)
    assert (done.state, done.runs[0].attempts) == (RunState.SUCCEEDED, 2)
    assert postroom.clock.now == killed_at + timedelta(seconds=60, milliseconds=1)


def test_a_job_cannot_handle_its_own_end(postroom: Postroom) -> None:
    """Neither ``except Exception``, nor ``finally``, nor a block that is left does anything more."""
    went_on: list[str] = []

    def stubborn() -> None:
        with closing(sqlite3.connect(postroom.path)) as spare:
            try:
                try:
                    by_sqlite3(postroom)
                except Exception:  # noqa: BLE001
                    went_on.append("handled")
                finally:
                    spare.execute("INSERT INTO reports VALUES ('finally', 1)")
                    spare.commit()
            except BaseException:  # noqa: BLE001
                with suppress(BaseException):
                    outbox.enqueue(spare, mail(), key="sorry", own_transaction=True)
                with suppress(BaseException), sqlite3.connect(postroom.path) as another:
                    another.execute("INSERT INTO reports VALUES ('another', 1)")
                for begun in (spare, spare.cursor()):
                    with suppress(BaseException):
                        begun.executescript("INSERT INTO reports VALUES ('script', 1)")
                with suppress(BaseException), postroom.engine.begin() as connection:
                    connection.execute(text("INSERT INTO reports VALUES ('engine', 1)"))
                another.close()
                went_on.append("lived")

    killed = postroom.run(stubborn, crash_at="before-commit")
    assert (killed.state, went_on) == (RunState.RUNNING, ["lived"])
    assert (reports(postroom), postroom.enqueued()) == ([], [])


def test_a_connection_of_the_test_s_own_dies_as_well(postroom: Postroom) -> None:
    """It holds no lock afterwards, and nothing that it had not committed; then it works again."""
    shared = postroom.connection()

    def careless() -> None:
        shared.execute("INSERT INTO reports VALUES ('mine', 1)")
        shared.execute("INSERT INTO reports VALUES ('mine', 2)")

    killed = postroom.run(careless, crash_at="statement:2")
    assert killed.state is None
    assert not shared.in_transaction
    assert reports(postroom) == []
    with shared:
        shared.execute("INSERT INTO reports VALUES ('after', 1)")
    assert reports(postroom) == ["after"]


def _with_block(connection: sqlite3.Connection) -> None:
    with connection:
        pass


COMMITS: dict[str, Any] = {
    "commit()": lambda connection: connection.commit(),
    "the end of a block": _with_block,
    "COMMIT": lambda connection: connection.execute("COMMIT"),
    "isolation_level = None": lambda connection: setattr(connection, "isolation_level", None),
    "autocommit = True": lambda connection: setattr(connection, "autocommit", True),
}


@pytest.mark.parametrize("how", COMMITS)
def test_whatever_commits_is_a_commit(postroom: Postroom, how: str) -> None:
    """Also a block that is left, and the settings that end a transaction without a word."""
    later = hasattr(sqlite3.Connection, "autocommit")  # Python 3.12
    if how == "autocommit = True" and not later:
        how = "commit()"
    options: Any = {"autocommit": False} if how == "autocommit = True" else {}

    def committing() -> None:
        with closing(sqlite3.connect(postroom.path, **options)) as connection:
            connection.execute("INSERT INTO reports VALUES ('mine', 1)")
            COMMITS[how](connection)

    points = postroom.crash_points(committing)
    assert [point.before for point in points] == [
        "INSERT INTO reports",
        "COMMIT",
        "the process ends",
    ]
    postroom.run(committing, crash_at=points[1])
    assert reports(postroom) == []
    postroom.run(committing)
    assert reports(postroom) == ["mine"]


def test_an_exception_inside_of_others_is_still_the_end(postroom: Postroom) -> None:
    """A task group wraps what its tasks raise; that changes nothing."""

    async def grouped() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.to_thread(by_sqlite3, postroom, "p1"))

    killed = postroom.run(grouped, crash_at="after-claim")
    assert (killed.state, killed.key) == (RunState.RUNNING, "by-sqlite3:all:p1")


def test_the_statements_of_all_threads_are_the_run_s(postroom: Postroom) -> None:
    """But not those of the thread that renews the lease."""

    def in_threads() -> None:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(by_sqlite3, postroom).result()

    assert postroom.run(in_threads, crash_at="before-commit").state is RunState.RUNNING
    beats: list[BaseException] = []
    tried: list[Any] = [lambda: None]

    def beating() -> None:
        connection = postroom.connection()

        def beat() -> None:
            with suppress(sqlite3.OperationalError), closing(sqlite3.connect(postroom.path)) as own:
                try:
                    own.execute("SELECT 1")
                except BaseException as error:
                    beats.append(error)
                    raise

        def once() -> None:
            thread = threading.Thread(target=beat, name="beat of something")
            thread.start()
            thread.join()

        once()
        assert beats == []
        tried[0] = once
        connection.execute("SELECT 2")
        tried[0]()

    def and_after() -> None:
        try:
            beating()
        finally:
            tried[0]()

    assert [str(p) for p in postroom.run(beating).points] == [
        "statement:1, before SELECT 2",
        "statement:2 (end), before the process ends",
    ]
    postroom.run(and_after, crash_at="statement:1")
    assert [type(error) for error in beats] == [sqlite3.OperationalError]


# --------------------------------------------------------------------------- #
# The points
# --------------------------------------------------------------------------- #


def test_the_points_lie_between_all_statements(postroom: Postroom) -> None:
    """Numbered, each name once and in order, the job's own statements among them; nothing stays."""
    points = postroom.crash_points(audit, **AUDIT)
    assert [point.number for point in points] == list(range(1, len(points) + 1))
    assert [name for point in points for name in point.names] == list(NAMES)
    by_name = {name: point.number for point in points for name in point.names}
    [own] = [point for point in points if "reports" in point.before]
    assert own.before == "INSERT INTO reports"
    assert by_name["before-finish"] < own.number < by_name["before-commit"]
    assert by_name["before-commit"] + 1 == by_name["after-commit"]
    assert points[by_name["before-commit"] - 1].before == "COMMIT"
    assert points[-1:] == (points[len(points) - 1],)
    assert f"{own}" in repr(points)
    assert (postroom.runs(), reports(postroom), postroom.enqueued()) == ([], [], [])
    assert not postroom.clock.was_set


def test_each_turn_of_a_loop_over_the_points_begins_anew(postroom: Postroom) -> None:
    """With the database and the clock as they were when the points were asked for."""
    with outbox.transaction(postroom.connection()) as connection:
        outbox.enqueue(connection, mail(), key="before")
    postroom.clock.at("2026-12-01T00:00Z")
    for point in postroom.crash_points(audit, **AUDIT)[20:]:
        del point
    for point in postroom.crash_points(by_sqlite3, postroom):
        assert [d.key for d in postroom.enqueued()] == ["before"], point
        assert postroom.runs() == []
        assert f"{postroom.clock.now:%Y-%m-%d %H:%M}" == "2026-12-01 00:00"
        killed = postroom.run(by_sqlite3, postroom, crash_at=point)
        assert killed.crashed_at == point
        postroom.clock.advance("2m")


def test_the_copies_of_a_database_go_with_its_kit(tmp_path: Path) -> None:
    """What was kept to go back to is not left behind."""
    with opened(tmp_path) as kit:
        kit.assert_crash_safe(by_sqlite3, kit)
        assert len(list(tmp_path.glob("*.db"))) == 2
    assert list(tmp_path.glob("*.db")) == [kit.path]


async def in_a_session(kit: Postroom) -> None:
    """A run in an event loop."""
    engine = create_async_engine(kit.url.replace("sqlite", "sqlite+aiosqlite"))
    try:
        async with outbox.open_run("by-session", period="p1") as run:
            if run.mine:
                async with AsyncSession(engine) as session, run.finish(session) as tx:
                    await session.execute(text("INSERT INTO reports VALUES ('x', 7)"))
                    await tx.enqueue(mail(), name="owner")
    finally:
        await engine.dispose()


def in_django(kit: Postroom) -> None:
    """A run on a connection of Django's, which commits in a way of its own."""
    with django_connection(kit.url) as connection, outbox.open_run("dj", period="p1") as run:
        if run.mine:
            with run.finish(connection) as tx:
                with connection.cursor() as cursor:
                    cursor.execute("INSERT INTO reports VALUES (%s, 7)", [run.key])
                tx.enqueue(mail(), name="owner")


def test_after_a_crash_anywhere_a_run_ends_right(postroom: Postroom) -> None:
    """Killed before any statement and started again: one report, one delivery, one success."""
    turns = 0
    for point in postroom.every_crash(audit, **AUDIT):
        turns += 1
        assert len(reports(postroom)) == 1, point
        assert len(postroom.enqueued()) == 1, point
        assert [run.state for run in postroom.runs()] == ["succeeded"], point
    assert turns == len(postroom.crash_points(audit, **AUDIT)) > 20


@pytest.mark.parametrize("function", [by_sqlite3, in_a_session, in_django])
def test_a_crash_leaves_nothing_else_on_any_connection(
    postroom: Postroom, function: Callable[[Postroom], Any]
) -> None:
    """As they come, in an event loop, and in Django: all rows are what they are without a crash."""
    postroom.assert_crash_safe(function, postroom)


# --------------------------------------------------------------------------- #
# A job that is not safe
# --------------------------------------------------------------------------- #


def test_a_job_that_commits_on_its_own_is_found(postroom: Postroom) -> None:
    """What it wrote beside its run is there twice after a crash: the point and the rows are shown."""

    @outbox.job("unsafe", period=daily(timezone="UTC"))
    def unsafe(run: Any) -> None:
        with postroom.engine.begin() as connection:
            connection.execute(text("INSERT INTO reports VALUES (:key, 7)"), {"key": run.key})
        with run.finish() as tx:
            tx.enqueue(mail(), name="owner")

    with pytest.raises(AssertionError) as failed:
        postroom.assert_crash_safe(unsafe, **DAY)
    said = str(failed.value)
    assert said.startswith("killed at statement:")
    assert ", and started again, this run does not leave what it leaves without a crash" in said
    assert "  reports:\n    too many: run_key='unsafe:all:2026-11-28', findings=7\n" in said
    assert "unsafe:all:2026-11-28 is complete: 1 delivery pending" in said
    assert reports(postroom) == []
    twice = [
        point.before for point in postroom.every_crash(unsafe, **DAY) if len(reports(postroom)) > 1
    ]
    assert "INSERT INTO outbox_deliveries" in twice
    assert "INSERT INTO reports" not in twice
    postroom.assert_crash_safe(unsafe, **DAY, ignore=["reports"])


def test_what_cannot_be_the_same_twice_can_be_left_out(postroom: Postroom) -> None:
    """Columns with instants or chance in them; the failure says how."""
    ids = iter(range(1_000))

    def numbered() -> None:
        with outbox.open_run("numbered", period="p1") as run:
            if run.mine:
                with run.finish() as tx:
                    values = {"key": run.key, "number": next(ids)}
                    tx.session.execute(text("INSERT INTO reports VALUES (:key, :number)"), values)

    with pytest.raises(AssertionError) as failed:
        postroom.assert_crash_safe(numbered)
    assert "only these differ: 'reports.findings'; if they may, pass ignore=" in str(failed.value)
    postroom.assert_crash_safe(numbered, ignore=["reports.findings"])
    with pytest.raises(ValueError, match=r"no table or column reports\.findigns"):
        postroom.assert_crash_safe(numbered, ignore=["reports.findigns"])


def test_an_error_after_a_crash_says_where_the_crash_was(postroom: Postroom) -> None:
    """The job's own error goes on to the test, with a note."""
    made: list[str] = []

    def once_only() -> None:
        with outbox.open_run("once", period="p1") as run:
            if run.mine:
                made.append(run.key)
                if len(made) > 2:
                    raise FileExistsError("it was made before")
                with run.finish():
                    pass

    with pytest.raises(FileExistsError) as failed:
        postroom.assert_crash_safe(once_only)
    [note] = failed.value.__notes__
    assert note.startswith("when it was started again after it was killed at statement:")


def test_only_a_run_that_succeeds_can_be_tried(postroom: Postroom) -> None:
    """A run that has nothing to do, or fails, would prove nothing."""
    postroom.run(audit, **AUDIT)
    with pytest.raises(ValueError, match=r"nothing left to do for this run: .* is complete since"):
        postroom.assert_crash_safe(audit, **AUDIT)
    postroom.clock.at("2027-01-01T00:00Z")
    with pytest.raises(ValueError, match=r"does not succeed: .* is skipped"):
        postroom.assert_crash_safe(audit, subject="other", period="2026-W48")


# --------------------------------------------------------------------------- #
# Points that are none
# --------------------------------------------------------------------------- #


def test_a_point_that_is_never_reached_is_an_error(postroom: Postroom) -> None:
    """A test that thinks it has crashed something must not pass; it is told where it could."""
    with pytest.raises(AssertionError) as failed:
        postroom.run(audit, **AUDIT, crash_at="statement:99")
    said = str(failed.value)
    assert said.startswith("crash_at='statement:99' was never reached; the points of this run were")
    assert "(before-commit), before COMMIT\n" in said
    with pytest.raises(AssertionError, match="'before-commit' was never reached"):
        postroom.run(audit, **AUDIT, crash_at="before-commit")
    with pytest.raises(ConnectionError):
        postroom.run(_raises, crash_at="after-commit")
    with pytest.raises(ValueError, match=r'use after-claim, .*, end, or "statement:N"'):
        postroom.run(audit, **AUDIT, crash_at="during-commit")


def _raises() -> None:
    raise ConnectionError


def test_a_kill_is_no_exception() -> None:
    """``except Exception`` does not catch it."""
    assert not issubclass(Killed, Exception)


@pytest.mark.parametrize(
    ("statement", "kind", "word", "short"),
    [
        ("COMMIT", Kind.COMMIT, "COMMIT", "COMMIT"),
        ("  end transaction", Kind.COMMIT, "END", "end transaction"),
        ("ROLLBACK", Kind.ROLLBACK, "ROLLBACK", "ROLLBACK"),
        ("ROLLBACK TO SAVEPOINT a", Kind.OTHER, "ROLLBACK", "ROLLBACK TO SAVEPOINT a"),
        (
            "-- why\n/* how */ PRAGMA user_version",
            Kind.SETTING,
            "PRAGMA",
            "-- why /* how */ PRAGMA user_version",
        ),
        ("INSERT INTO reports(a) VALUES (1)", Kind.OTHER, "INSERT", "INSERT INTO reports"),
        ("insert or ignore into t values (1)", Kind.OTHER, "INSERT", "insert or ignore into t"),
        ('UPDATE "my table" SET a = 1', Kind.OTHER, "UPDATE", 'UPDATE "my'),
        ("DELETE FROM t", Kind.OTHER, "DELETE", "DELETE FROM t"),
        ("SELECT a,\n b FROM t WHERE c", Kind.OTHER, "SELECT", "SELECT … FROM t"),
        (f"SELECT {'1' * 90}", Kind.OTHER, "SELECT", f"SELECT {'1' * 62}…"),
        ("", Kind.OTHER, "", ""),
    ],
)
def test_a_statement_is_known_by_its_words(
    statement: str, kind: Kind, word: str, short: str
) -> None:
    """What it is to a run, and how it is shown."""
    assert (kind_of(statement), first_word(statement), shown(statement)) == (kind, word, short)


def test_a_key_of_the_job_is_what_is_expected() -> None:
    """The rig's key is the one that the job makes."""
    assert KEY == "website-audit:site-42:2026-W48"
