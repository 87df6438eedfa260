"""Backfills on both databases: what is made, left out, started, paused, and never done twice."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import timedelta

import pytest

from outbox.database import reading
from outbox.jobs import backfill, wakers
from outbox.jobs.crew import Crew
from outbox.jobs.decide_backfill import AHEAD, InvalidBackfill, Wanted
from outbox.jobs.events import RunLeft
from outbox.jobs.job_run import JobRun
from outbox.jobs.periods import hourly
from outbox.jobs.subjects import Subject
from outbox.records_runs import NewRun
from outbox.records_schedules import ReadyRun
from outbox.states_jobs import RunState
from outbox.store import backfills, plans
from tests.conformance.backfill_rig import SITES, Bench, bench, day, declared, finishing, use
from tests.conformance.job_rig import until

DONE = "UPDATE outbox_runs SET state = 'succeeded', finished_at = updated_at"
STATES = "SELECT state, count(*) FROM outbox_runs WHERE kind = 'backfill' GROUP BY state"


def states(bench: Bench) -> dict[str, int]:
    """How many runs of backfills are in which state."""
    return dict(bench.rows(STATES))


def test_looking_changes_nothing(database_url: str) -> None:
    """The dry run counts what would be made, and how long it takes at the limit."""
    with bench(database_url) as jobs:
        seen = jobs.look(day(jobs, 5), day(jobs, 3), runs_per_hour=60)
        assert (seen.subjects, seen.runs, seen.succeeded, seen.under_way) == (2, 6, 0, 0)
        assert seen.takes == timedelta(minutes=5)
        assert seen.oldest == f"site-1 {day(jobs, 5)}"
        assert jobs.rows("SELECT count(*) FROM outbox_backfills") == [(0,)]


def test_an_order_is_done_once_without_deliveries(database_url: str) -> None:
    """Each period of each subject has one run, of its own kind and key; nobody gets mail."""
    with bench(database_url) as jobs:
        id_ = jobs.order(day(jobs, 5), day(jobs, 3), concurrency=2)
        ended = jobs.drain()
        assert [each.state for each in ended] == [RunState.SUCCEEDED] * 6
        assert {
            (kind, origin, order)
            for kind, origin, order in jobs.rows(
                "SELECT kind, origin, backfill_id FROM outbox_runs"
            )
        } == {("backfill", "backfill", id_)}
        keys = {key for (key,) in jobs.rows("SELECT run_key FROM outbox_runs")}
        assert f"audit:site-2:{day(jobs, 4)}:backfill" in keys
        assert jobs.rows("SELECT count(*) FROM outbox_deliveries") == [(0,)]
        assert jobs.order_row(id_, "state, planned_runs, left_out") == ("done", 6, 0)


def test_deliveries_leave_where_they_are_asked_for(database_url: str) -> None:
    """Their keys are those of the backfill's runs, so they are nobody else's."""
    with bench(database_url, declared(subjects=SITES[:1])) as jobs:
        jobs.order(day(jobs, 3), day(jobs, 3), deliveries=True)
        jobs.drain()
        [(key,)] = jobs.rows("SELECT delivery_key FROM outbox_deliveries")
        assert key == f"audit:site-1:{day(jobs, 3)}:backfill:owner"


def test_periods_that_have_succeeded_are_left_out(database_url: str) -> None:
    """Whoever did them; those that failed or were skipped are run, those to be done are not."""
    with bench(database_url, declared(missed="latest"), active_days=6) as jobs:
        [newest] = [work for work in jobs.live() if work.run.subject == "site-1"]
        attempt = jobs.begin_live(newest)
        assert attempt is not None
        assert attempt.perform().state is RunState.SUCCEEDED
        seen = jobs.look(day(jobs, 4), newest.run.label)
        # site-1: its newest has succeeded; site-2: its newest is planned.
        assert (seen.succeeded, seen.under_way) == (1, 1)
        live = jobs.rows("SELECT count(*) FROM outbox_runs WHERE kind = 'period'")
        id_ = jobs.order(day(jobs, 4), newest.run.label)
        jobs.drain()
        [other] = jobs.live()  # as long as it waits, nothing of its subject starts
        attempt = jobs.begin_live(other)
        assert attempt is not None
        attempt.perform()
        jobs.drain()
        assert jobs.order_row(id_, "state, left_out") == ("done", 2)
        assert jobs.order_row(id_, "planned_runs") == (seen.runs,)
        twice = """
            SELECT subject, label FROM outbox_runs WHERE state = 'succeeded'
            GROUP BY subject, label HAVING count(*) > 1
        """
        assert jobs.rows(twice) == []
        assert jobs.rows("SELECT count(*) FROM outbox_runs WHERE kind = 'period'") == live


def test_two_orders_of_one_range_do_it_once(database_url: str) -> None:
    """The second leaves out what the first has made, also while nothing of it has run."""
    with bench(database_url) as jobs:
        first = jobs.order(day(jobs, 4), day(jobs, 3))
        second = jobs.order(day(jobs, 5), day(jobs, 3))
        jobs.drain()
        assert states(jobs) == {"succeeded": 6}
        assert jobs.order_row(first, "planned_runs, left_out") == (4, 0)
        assert jobs.order_row(second, "planned_runs, left_out") == (2, 4)


def test_what_failed_is_run_by_the_next_order(database_url: str) -> None:
    """It is the same run, with all its attempts anew, and the order's wish for deliveries."""

    def failing(_: JobRun) -> None:
        raise ValueError("no data")

    with bench(database_url, declared(failing, subjects=SITES[:1], attempts=1)) as jobs:
        jobs.order(day(jobs, 3), day(jobs, 3))
        [ended] = jobs.drain()
        assert ended.state is RunState.FAILED
        use(jobs, declared(subjects=SITES[:1], attempts=1))
        second = jobs.order(day(jobs, 3), day(jobs, 3), deliveries=True)
        [again] = jobs.drain()
        assert (again.key, again.attempt, again.state) == (ended.key, 2, RunState.SUCCEEDED)
        assert jobs.rows("SELECT backfill_id FROM outbox_runs") == [(second,)]
        assert len(jobs.rows("SELECT id FROM outbox_deliveries")) == 1


def test_runs_are_made_a_little_ahead_of_the_work(database_url: str) -> None:
    """A long range is not one transaction: rounds go on where the last one ended."""
    job = declared(period=hourly(), subjects=SITES[:1])
    with bench(database_url, job) as jobs:
        id_ = jobs.order(day(jobs, 12), day(jobs, 3))
        rounds = [jobs.plan().planned for _ in range(2)]
        assert rounds == [AHEAD, 0]
        while not jobs.order_row(id_, "finished_at")[0]:
            jobs.change(DONE)
            jobs.plan()
        planned, expected = jobs.order_row(id_, "planned_runs, expected_runs")
        assert planned == expected in {239, 240, 241}
        starts = [start for (start,) in jobs.rows("SELECT label FROM outbox_runs ORDER BY id")]
        assert starts == sorted(set(starts))


# --------------------------------------------------------------------------- #
# The lane
# --------------------------------------------------------------------------- #


def test_no_more_at_once_than_were_ordered(database_url: str) -> None:
    """Counted in all processes together, at every claim."""
    with bench(database_url) as jobs:
        jobs.order(day(jobs, 5), day(jobs, 3), concurrency=1)
        jobs.plan()
        [one] = jobs.ready()
        [same] = jobs.ready()
        other = replace(same, run=_other_run(jobs, one.run.subject))
        attempt = jobs.begin(one)
        assert attempt is not None
        assert jobs.ready() == []
        assert jobs.begin(other) is None  # whoever read its list before is refused all the same
        attempt.perform()
        assert len(jobs.ready()) == 1


def _other_run(jobs: Bench, subject: str) -> ReadyRun:
    """A run of the other subject, as another process may have read it."""
    with reading(jobs.engine) as connection:
        [order] = backfills.at_work(connection, ["audit"])
        found = backfills.ready(connection, order, limit=10, allow=False)
    return next(run for run in found if run.subject != subject)


def test_the_limit_by_the_hour_holds(database_url: str) -> None:
    """After a start the next has to wait for its time, whoever asks."""
    with bench(database_url) as jobs:
        id_ = jobs.order(day(jobs, 5), day(jobs, 3), concurrency=5, runs_per_hour=60)
        [ended] = jobs.drain()
        assert ended.state is RunState.SUCCEEDED
        assert jobs.ready() == []
        jobs.change(
            "UPDATE outbox_backfills SET last_started_at = '"
            f"{jobs.now() - timedelta(seconds=61):%Y-%m-%dT%H:%M:%S.000Z}'"
        )
        assert len(jobs.drain()) == 1
        assert jobs.order_row(id_, "state") == ("active",)


def test_live_runs_go_first(database_url: str) -> None:
    """While a live run of its subject is waiting, no run of a backfill of it starts."""
    job = declared(subjects=SITES[:1], missed="latest")
    with bench(database_url, job, active_days=6) as jobs:
        jobs.order(day(jobs, 5), day(jobs, 3))
        jobs.plan()
        [live] = jobs.live()
        assert jobs.ready() == []
        running = jobs.begin_live(live)
        assert running is not None
        assert jobs.ready() == []  # its subject's runs wait for each other
        running.perform()
        assert len(jobs.ready()) == 1


def test_a_claim_asks_for_live_runs_again(database_url: str) -> None:
    """A list that was read before the live run was planned starts nothing."""
    job = declared(subjects=SITES[:1], missed="latest")
    with bench(database_url, job, active_days=6) as jobs:
        [live] = jobs.live()
        jobs.order(day(jobs, 5), day(jobs, 4))
        jobs.plan()
        jobs.change("UPDATE outbox_runs SET next_attempt_at = '2999-01-01T00:00:00.000Z' WHERE kind = 'period'")  # fmt: skip
        [work] = jobs.ready()
        jobs.change("UPDATE outbox_runs SET next_attempt_at = due_at WHERE kind = 'period'")
        assert jobs.begin(work) is None
        assert jobs.begin_live(live) is not None


def test_a_limited_job_keeps_a_place_for_live_runs(database_url: str) -> None:
    """Of two places a backfill takes one, however much it may."""
    many = tuple(Subject(f"site-{n}", "UTC") for n in range(4))
    with bench(database_url, declared(subjects=many, concurrency=2)) as jobs:
        jobs.order(day(jobs, 3), day(jobs, 3), concurrency=4)
        jobs.plan()
        begun = [jobs.begin(work) for work in jobs.ready()]
        assert sum(each is not None for each in begun) == 1


def test_a_run_waits_for_another_of_its_subject(database_url: str) -> None:
    """Also where the job's policy is to skip: what was ordered is not lost."""
    job = declared(subjects=SITES[:1], overlap="skip", missed="latest")
    with bench(database_url, job, active_days=6) as jobs:
        [live] = jobs.live()
        jobs.order(day(jobs, 5), day(jobs, 4))
        jobs.plan()
        jobs.change("UPDATE outbox_runs SET next_attempt_at = '2999-01-01T00:00:00.000Z' WHERE kind = 'period'")  # fmt: skip
        [work] = jobs.ready()
        jobs.change("UPDATE outbox_runs SET next_attempt_at = due_at WHERE kind = 'period'")
        running = jobs.begin_live(live)
        assert running is not None
        assert jobs.begin(work) is None
        assert states(jobs) == {"planned": 2}
        running.perform()
        assert jobs.begin(work) is not None


def test_a_live_run_is_never_skipped_for_a_backfill(database_url: str) -> None:
    """The policy skip is about live runs; for the end of a backfill's run a live one waits."""
    job = declared(subjects=SITES[:1], overlap="skip", missed="latest")
    with bench(database_url, job, active_days=6) as jobs:
        [live] = jobs.live()
        jobs.order(day(jobs, 5), day(jobs, 4))
        jobs.plan()
        jobs.change("UPDATE outbox_runs SET next_attempt_at = '2999-01-01T00:00:00.000Z' WHERE kind = 'period'")  # fmt: skip
        [work] = jobs.ready()
        running = jobs.begin(work)
        assert running is not None
        jobs.change("UPDATE outbox_runs SET next_attempt_at = due_at WHERE kind = 'period'")
        with reading(jobs.engine) as connection:
            policies = {"audit": job.definition.overlap}
            assert plans.overlapping(connection, policies, until=jobs.now()) == []
        assert jobs.begin_live(live) is None
        state = f"SELECT state FROM outbox_runs WHERE run_key = '{live.run.key}'"
        assert jobs.rows(state) == [("planned",)]
        running.perform()
        assert jobs.begin_live(live) is not None


def test_a_process_keeps_a_thread_for_live_runs(database_url: str) -> None:
    """With two threads a backfill has one, and a live run that comes due starts at once."""
    go_on, began = threading.Event(), []

    def waiting(run: JobRun) -> None:
        began.append(run.key)
        assert go_on.wait(60)
        finishing(run)

    many = tuple(Subject(f"site-{n}", "UTC") for n in range(4))
    with bench(database_url, declared(waiting, subjects=many)) as jobs:
        jobs.order(day(jobs, 3), day(jobs, 3), concurrency=4)
        jobs.plan()
        crew = Crew(jobs.engine, jobs.catalog, size=2, owner="here", emit=jobs.heard.append)
        assert (crew.start_ready(until=jobs.now()), crew.start_backfills()) == (0, 1)
        until(lambda: len(began) == 1, "the backfill's run begins")
        assert crew.start_backfills() == 0
        since = (jobs.now() - timedelta(days=2)).strftime("%Y-%m-%dT%H:%M:%S.000Z")
        jobs.change(f"UPDATE outbox_schedules SET active_since = '{since}', next_due_at = NULL")
        jobs.plan_live()
        assert crew.start_ready(until=jobs.now()) == 1
        until(lambda: len(began) == 2, "the live run begins beside it")
        go_on.set()
        crew.stop(timedelta(seconds=60))
        assert [key.endswith(":backfill") for key in began] == [True, False]


def test_a_tick_works_on_both(database_url: str) -> None:
    """Live runs first, then the backfill, until nothing is left to do."""
    order: list[bool] = []

    def noting(run: JobRun) -> None:
        order.append(run.key.endswith(":backfill"))
        finishing(run)

    job = declared(noting, subjects=SITES[:1], missed="latest")
    with bench(database_url, job, active_days=6) as jobs:
        id_ = jobs.order(day(jobs, 5), day(jobs, 3))
        done = wakers.tick(
            jobs.engine, jobs.catalog, wakers.Settings(concurrency=1), emit=jobs.heard.append
        )
        assert (done.succeeded, done.failed) == (4, 0)
        assert order == [False, True, True, True]
        assert jobs.order_row(id_, "state") == ("done",)


def test_a_period_done_meanwhile_is_skipped(database_url: str) -> None:
    """The live run was tried again by hand after the order was made: nothing is done twice."""
    job = declared(subjects=SITES[:1], missed="latest")
    with bench(database_url, job, active_days=6) as jobs:
        jobs.order(day(jobs, 4), day(jobs, 4))
        jobs.plan()
        key = f"audit:site-1:{day(jobs, 4)}"
        jobs.change(
            "UPDATE outbox_runs SET state = 'succeeded', reason = NULL "
            f"WHERE kind = 'period' AND run_key = '{key}'"
        )
        for live in jobs.live():
            attempt = jobs.begin_live(live)
            assert attempt is not None
            attempt.perform()
        assert jobs.drain() == []
        assert states(jobs) == {"skipped": 1}
        assert any(isinstance(e, RunLeft) and key in e.sentence for e in jobs.heard)
        [(detail,)] = jobs.rows("SELECT detail FROM outbox_runs WHERE kind = 'backfill'")
        assert detail == f"{key} does this period, or has done it"


def test_a_run_under_way_is_not_taken_by_an_old_list(database_url: str) -> None:
    """Nor is it skipped, though another run has done the period meanwhile: its worker is told."""
    job = declared(subjects=SITES[:1], missed="latest", overlap="allow")
    with bench(database_url, job, active_days=6) as jobs:
        [live] = jobs.live()
        attempt = jobs.begin_live(live)
        assert attempt is not None
        attempt.perform()
        jobs.order(day(jobs, 4), day(jobs, 4), concurrency=2)
        jobs.plan()
        [work] = jobs.ready()
        assert jobs.begin(work) is not None
        jobs.change(
            "UPDATE outbox_runs SET state = 'succeeded', reason = NULL "
            f"WHERE run_key = 'audit:site-1:{day(jobs, 4)}'"
        )
        assert jobs.begin(work) is None
        assert states(jobs) == {"running": 1}


def test_one_run_of_each_subject_is_offered(database_url: str) -> None:
    """Its others would only wait for it; where they may overlap, they are offered too."""
    for overlap, expected in (("wait", 1), ("allow", 2)):
        with bench(database_url, declared(subjects=SITES[:1], overlap=overlap)) as jobs:
            id_ = jobs.order(day(jobs, 5), day(jobs, 3), concurrency=2)
            jobs.plan()
            assert len(jobs.ready()) == expected
            backfill.cancel(jobs.engine, id_, actor="ana", note="next")


def test_an_order_with_runs_to_do_is_not_done(database_url: str) -> None:
    """Whoever found it done by an old count finds out otherwise."""
    with bench(database_url) as jobs:
        id_ = jobs.order(day(jobs, 5), day(jobs, 3))
        jobs.plan()
        with jobs.engine.begin() as connection:
            assert not backfills.finish(connection, id_)
        assert jobs.order_row(id_, "state") == ("active",)


def test_a_run_that_was_opened_again_is_not_taken_over(database_url: str) -> None:
    """Somebody has asked for it meanwhile; it stays that order's."""
    with bench(database_url, declared(subjects=SITES[:1])) as jobs:
        jobs.order(day(jobs, 3), day(jobs, 3))
        jobs.plan()
        [work] = jobs.ready()
        with jobs.engine.begin() as connection:
            [known] = backfills.known_runs(
                connection, "audit", ["site-1"], labels=[work.run.label], starts=[]
            )["site-1"]
            run = NewRun(known.key, "audit", "site-1", known.label, backfill_id=1)
            assert not backfills.take_over(connection, known, run)


def test_many_workers_do_each_period_once(database_url: str) -> None:
    """Four threads plan and work on one order at the same time."""
    done: list[str] = []

    def recording(run: JobRun) -> None:
        finishing(run)
        done.append(run.key)

    many = tuple(Subject(f"site-{n}", "UTC") for n in range(3))
    with bench(database_url, declared(recording, subjects=many)) as jobs:
        id_ = jobs.order(day(jobs, 6), day(jobs, 3), concurrency=3)
        began = threading.Barrier(4)

        def work() -> None:
            began.wait()
            until(lambda: bool(jobs.drain()) or jobs.order_row(id_, "state") == ("done",), "end")
            until(lambda: not jobs.drain() and jobs.order_row(id_, "state") == ("done",), "end")

        threads = [threading.Thread(target=work) for _ in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert len(done) == len(set(done)) == 12
        assert jobs.order_row(id_, "state, planned_runs, left_out") == ("done", 12, 0)


# --------------------------------------------------------------------------- #
# What people decide, and what changes under an order
# --------------------------------------------------------------------------- #


def test_paused_nothing_starts_resumed_it_goes_on(database_url: str) -> None:
    """Runs that were made wait; the audit trail has a line for each."""
    with bench(database_url) as jobs:
        id_ = jobs.order(day(jobs, 5), day(jobs, 3))
        jobs.plan()
        work = jobs.ready()[0]
        paused = backfill.pause(jobs.engine, id_, actor="ana", note="peak hours")
        assert (paused.state, paused.pause_detail) == ("paused", "peak hours")
        assert (jobs.ready(), jobs.begin(work), jobs.plan().planned) == ([], None, 0)
        with pytest.raises(InvalidBackfill, match="is paused, so there is nothing to do"):
            backfill.pause(jobs.engine, id_, actor="ana", note="again")
        assert jobs.resume(id_).state == "active"
        jobs.drain()
        assert jobs.order_row(id_, "state") == ("done",)
        assert jobs.rows("SELECT action, subject FROM outbox_audit ORDER BY id") == [
            (f"backfill {verb}", f"backfill {id_}") for verb in ("order", "pause", "resume")
        ]


def test_a_paused_subject_is_paused_for_backfills_too(database_url: str) -> None:
    """Nothing of it starts, by no list however old, until it is resumed."""
    with bench(database_url, declared(subjects=SITES[:1])) as jobs:
        jobs.order(day(jobs, 4), day(jobs, 3))
        jobs.plan()
        [work] = jobs.ready()
        jobs.change("UPDATE outbox_schedules SET state = 'paused' WHERE subject = 'site-1'")
        assert (jobs.ready(), jobs.begin(work)) == ([], None)
        jobs.change("UPDATE outbox_schedules SET state = 'active' WHERE subject = 'site-1'")
        assert len(jobs.drain()) == 2


def test_cancelled_the_rest_is_cancelled(database_url: str) -> None:
    """What nobody works on is cancelled; what is running may finish, and nothing follows."""
    with bench(database_url) as jobs:
        id_ = jobs.order(day(jobs, 5), day(jobs, 3))
        jobs.plan()
        attempt = jobs.begin(jobs.ready()[0])
        assert attempt is not None
        ended, count = backfill.cancel(jobs.engine, id_, actor="ana", note="wrong range")
        assert (ended.state, count) == ("cancelled", 5)
        assert attempt.perform().state is RunState.SUCCEEDED
        assert jobs.drain() == []
        assert states(jobs) == {"cancelled": 5, "succeeded": 1}
        with pytest.raises(InvalidBackfill, match="is cancelled"):
            jobs.resume(id_)


def test_another_definition_pauses_it(database_url: str) -> None:
    """Code cannot be brought back: nothing runs by a definition that was not ordered."""
    with bench(database_url) as jobs:
        id_ = jobs.order(day(jobs, 5), day(jobs, 3))
        jobs.plan()
        work = jobs.ready()[0]
        other = declared(expects={"records": 1})
        use(jobs, other)
        assert jobs.begin(replace(work, job=other)) is None
        assert jobs.order_row(id_, "state, pause_reason") == ("paused", "definition_changed")
        [line] = jobs.troubles
        assert "the definition of audit is 1:" in line
        assert f"postroom jobs backfill resume {id_} --accept-changes" in line
        with pytest.raises(InvalidBackfill, match="add --accept-changes"):
            jobs.resume(id_)
        use(jobs, declared())
        assert jobs.resume(id_).state == "active"


def test_another_time_zone_pauses_it_in_planning(database_url: str) -> None:
    """The periods of a subject would be others than those that were looked at."""
    with bench(database_url) as jobs:
        id_ = jobs.order(day(jobs, 5), day(jobs, 3))
        jobs.change("UPDATE outbox_schedules SET timezone = 'UTC' WHERE subject = 'site-2'")
        assert jobs.plan().planned == 0
        assert jobs.order_row(id_, "pause_detail") == (
            (
                'the periods of "site-2" are "daily timezone=UTC" now, and this was ordered for '
                '"daily timezone=America/New_York"'
            ),
        )
        jobs.resume(id_, accept=True)
        jobs.drain()
        assert jobs.order_row(id_, "state, planned_runs") == ("done", 6)


def test_subjects_that_are_not_there_are_refused(database_url: str) -> None:
    """The line names some that are."""
    with bench(database_url) as jobs:
        with pytest.raises(InvalidBackfill, match='no subject "site-9"; known: site-1, site-2'):
            jobs.look(day(jobs, 5), day(jobs, 3), subjects=("site-9",))
        jobs.change("UPDATE outbox_schedules SET state = 'ended', ended_at = updated_at WHERE subject = 'site-2'")  # fmt: skip
        with pytest.raises(InvalidBackfill, match=r'no subject "site-2" \(it has ended\)'):
            jobs.look(day(jobs, 5), day(jobs, 3), subjects=("site-2",))
        assert jobs.look(day(jobs, 5), day(jobs, 3)).subjects == 1


def test_with_nothing_to_run_nothing_is_stored(database_url: str) -> None:
    """An order of what is still to come, or of what is done, makes no row."""
    with bench(database_url) as jobs:
        wanted = Wanted("audit", day(jobs, -2), day(jobs, -5))
        done = backfill.order(jobs.engine, jobs.catalog, wanted, actor="ana", note="x")
        assert (done.id, done.prospect.runs) == (None, 0)
        assert jobs.rows("SELECT count(*) FROM outbox_backfills") == [(0,)]
