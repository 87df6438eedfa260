"""The website-audit example: run twice, run at once, killed before COMMIT, and the demo."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Barrier, Thread
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, event

import outbox
from examples.website_audit import schema
from examples.website_audit.__main__ import choose_week, open_engine
from examples.website_audit.customers import examples, for_site
from examples.website_audit.job import audit
from examples.website_audit.ledger import Counts, count
from tests.conformance.job_rig import lapse

REPOSITORY = Path(__file__).parents[2]
BAKERY = examples()[0]
W48 = BAKERY.weeks.period("2026-W48")
RUN = "website-audit:site-42:2026-W48"
KEY = f"{RUN}:owner"


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    engine = open_engine(database_url)
    schema.create(engine)
    yield engine
    engine.dispose()


def counts(engine: Engine) -> Counts:
    with engine.connect() as connection:
        return count(connection)


def recorded(engine: Engine, columns: str) -> list[tuple[Any, ...]]:
    """Some columns of the run and its attempts, in the order of these."""
    join = "outbox_runs r JOIN outbox_run_attempts a ON a.run_id = r.id"
    with engine.connect() as connection:
        found = connection.exec_driver_sql(
            f"SELECT {columns} FROM {join} WHERE run_key = '{RUN}' ORDER BY number"
        )
        return [tuple(row) for row in found]


def run(
    *arguments: str, module: str = "examples.website_audit"
) -> subprocess.CompletedProcess[str]:
    """Run a module of the example as a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=REPOSITORY,
        env={name: value for name, value in os.environ.items() if name != "SITE"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_run_writes_its_report_and_a_pending_delivery(engine: Engine) -> None:
    """One start: a completed run, a row for each finding, and one mail to the owner, pending."""
    said = audit(engine, BAKERY, W48)
    assert said.endswith("is complete: 1 delivery pending; 8 pages read, 13 findings written")
    assert counts(engine) == Counts(runs=1, findings=13, rows=13, deliveries=1, accepted=0)
    with engine.connect() as connection:
        found = outbox.find(connection, KEY)
    assert found is not None
    assert [recipient.address for recipient in found.recipients] == ["ana@example.org"]
    assert found.message is not None
    assert [file.filename for file in found.message.attachments] == ["findings.csv"]
    assert found.run_key == RUN
    stored = "state, records, output_summary, progress_done"
    assert recorded(engine, stored) == [("succeeded", 13, '{"pages":8}', 8)]


def test_the_same_period_again_changes_nothing_and_says_so(engine: Engine) -> None:
    """A second start writes no row; its sentence says since when the run is complete."""
    audit(engine, BAKERY, W48)
    before = counts(engine)
    again = audit(engine, BAKERY, W48)
    assert again.startswith(f"{RUN} is complete since ")
    assert again.endswith("(attempt 1); 1 delivery pending")
    assert counts(engine) == before


def test_a_complete_run_does_not_even_fetch(engine: Engine, tmp_path: Path) -> None:
    """The second start needs no website: a site that is gone by then is no error."""
    folder = shutil.copytree(BAKERY.site, tmp_path / "site")
    mine = for_site(str(folder))
    assert "is complete:" in audit(engine, mine, W48)
    shutil.rmtree(folder)
    assert "is complete since" in audit(engine, mine, W48)


def test_a_changed_site_does_not_change_a_complete_run(engine: Engine, tmp_path: Path) -> None:
    """The report of a week stays what it was; the next week sees the change."""
    folder = shutil.copytree(BAKERY.site, tmp_path / "site")
    mine = for_site(str(folder))
    audit(engine, mine, W48)
    before = counts(engine)
    (folder / "index.html").write_text("<p>changed", encoding="utf-8")
    assert "is complete since" in audit(engine, mine, W48)
    assert counts(engine) == before
    assert "is complete:" in audit(engine, mine, mine.weeks.after(W48))


def test_starts_at_the_same_moment_write_once(engine: Engine) -> None:
    """Of four starts at once one does the work; the others say that it is done, or who is at it."""
    barrier = Barrier(4)

    def start() -> str:
        barrier.wait()
        return audit(engine, BAKERY, W48)

    with ThreadPoolExecutor(4) as pool:
        results = [job.result() for job in [pool.submit(start) for _ in range(4)]]
    done = [said for said in results if "is complete:" in said]
    others = [s for s in results if "is complete since" in s or "is running elsewhere" in s]
    assert (len(done), len(others)) == (1, 3), results
    assert counts(engine) == Counts(runs=1, findings=13, rows=13, deliveries=1)


def test_while_one_start_fetches_the_others_do_nothing(engine: Engine) -> None:
    """A run that is being worked on is nobody else's: they are told so, and fetch nothing."""
    others: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            # The other start happens inside this one's fetching: no transaction may be open now.
            others.append(audit(engine, mine, W48))
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        mine = for_site(f"http://127.0.0.1:{server.server_port}")
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            said = audit(engine, mine, W48)
        finally:
            server.shutdown()
            thread.join()
    assert len(others) == 2  # one for robots.txt, one for the page
    assert all("is running elsewhere since" in other for other in others)
    assert "is complete: 1 delivery pending; 1 page read" in said
    assert counts(engine).runs == counts(engine).deliveries == 1


def test_another_site_for_a_complete_week_is_an_error(engine: Engine, tmp_path: Path) -> None:
    """An old report never stands for another site silently; the same folder elsewhere is no other."""
    audit(engine, BAKERY, W48)
    moved = replace(BAKERY, site=str(shutil.copytree(BAKERY.site, tmp_path / "bakery")))
    assert "is complete since" in audit(engine, moved, W48)
    with pytest.raises(outbox.InputChanged, match="site"):
        audit(engine, replace(BAKERY, site=examples()[1].site), W48)


def test_a_failure_before_commit_leaves_nothing(engine: Engine) -> None:
    """An error after the last write takes report, run and delivery back together."""

    def fail(connection: Connection) -> None:
        assert count(connection) == Counts(runs=1, findings=13, rows=13, deliveries=1)
        raise RuntimeError("out of disk")

    event.listen(engine, "commit", fail)
    with pytest.raises(RuntimeError, match="out of disk"):
        audit(engine, BAKERY, W48)
    event.remove(engine, "commit", fail)
    assert counts(engine) == Counts()
    assert recorded(engine, "state, error") == [("planned", "RuntimeError: out of disk")]
    assert "is complete:" in audit(engine, BAKERY, W48)


def test_a_delivery_that_cannot_be_written_takes_the_report_back(engine: Engine) -> None:
    """A key that is known with another message is an error, and the run is not complete then."""
    with engine.begin() as connection:
        other = outbox.Email(to="ana@example.org", subject="Something else", text="…")
        outbox.enqueue(connection, other, key=KEY)
    with pytest.raises(outbox.KeyConflict):
        audit(engine, BAKERY, W48)
    assert counts(engine) == Counts(deliveries=1)


def test_a_process_killed_before_commit_leaves_nothing(engine: Engine, database_url: str) -> None:
    """SIGKILL after the last write: no run, no row, no delivery; the next start does it all."""
    killed = run(
        "--database", database_url, "--week", "2026-W48", module="examples.website_audit.crash"
    )
    lapse(database_url)
    assert killed.returncode == -signal.SIGKILL
    assert killed.stdout.strip() == "in the open transaction: 1 run, 13 report rows, 1 delivery"
    assert counts(engine) == Counts()
    assert run("--database", database_url, "--week", "2026-W48").returncode == 0
    assert counts(engine) == Counts(runs=3, findings=16, rows=16, deliveries=3)


def test_one_site_that_is_down_does_not_cost_the_others_their_report(
    engine: Engine, database_url: str, tmp_path: Path
) -> None:
    """A site that cannot be read is named on standard error; exit code 1, and nothing written."""
    down = run("--database", database_url, "--week", "2026-W48", "--site", str(tmp_path / "gone"))
    assert down.returncode == 1
    assert "there is no such folder; nothing written" in down.stderr
    assert counts(engine) == Counts()


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [
        (["--week", "2026-W48"], 2, "--database"),
        (["--database", "sqlite:///x.db", "--week", "2027-W53"], 2, "is no label of this rule"),
        (["--database", "sqlite:///x.db", "--week", "2026-48"], 2, "write one like 2026-W48"),
        (["--database", "sqlite:///x.db", "--lease", "0"], 2, "--lease: at least 1 second"),
        (["--database", "nonsense"], 3, "--database: write sqlite:///path"),
        (["--database", "mysql://localhost/x"], 3, "mysql is not supported"),
        (["--database", "sqlite:////no/such/folder/x.db"], 3, "unable to open database file"),
    ],
)
def test_wrong_usage_is_one_clear_line(arguments: list[str], code: int, line: str) -> None:
    """What was given wrong is named, without a traceback, with the exit code of its kind."""
    ended = run(*arguments)
    assert (ended.returncode, "Traceback" in ended.stderr) == (code, False)
    assert line in ended.stderr


def test_a_database_without_outbox_tables_is_named(empty_sqlite_url: str) -> None:
    """Forgetting ``postroom migrate`` is one clear line, and no report is left without its mail."""
    ended = run("--database", empty_sqlite_url, "--week", "2026-W48")
    assert (ended.returncode, "Traceback" in ended.stderr) == (3, False)
    assert "postroom migrate" in ended.stderr


def test_the_week_and_its_deadline() -> None:
    """Without a week the latest complete one is meant, and its mail is pointless after the next."""
    now = datetime(2026, 12, 2, 9, 0, tzinfo=UTC)
    chosen, send_before = choose_week(None, BAKERY, now)
    assert chosen == W48
    assert send_before == BAKERY.weeks.period("2026-W49").end
    assert choose_week("2026-W40", BAKERY, now)[1] is None


def mails(var: Path) -> dict[str, bytes]:
    return {mail.name: mail.read_bytes() for mail in (var / "demo" / "mail").glob("*.eml")}


def test_the_demo_holds_and_holds_again(tmp_path: Path) -> None:
    """Twice in a row the demo ends with 0; the second time nothing is sent and it says so."""
    demo = "examples.website_audit.demo"
    first = run("--var", str(tmp_path), module=demo)
    assert (first.returncode, first.stderr) == (0, "")
    sent = mails(tmp_path)
    assert len(sent) == 3
    assert "killed" in first.stdout
    assert len(first.stdout.splitlines()) < 60
    second = run("--var", str(tmp_path), module=demo)
    assert second.returncode == 0, second.stdout
    assert mails(tmp_path) == sent
    assert "Everything is there already" in second.stdout
    assert "Nothing was sent a second time." in second.stdout


def test_the_demo_audits_a_site_of_ones_own_and_checks_what_it_claims(tmp_path: Path) -> None:
    """SITE is one run with a key of its own; a mail that is gone then ends the demo with 1."""
    demo = ("--var", str(tmp_path), "--site", examples()[1].site)
    mine = run(*demo, module="examples.website_audit.demo")
    assert (mine.returncode, len(mails(tmp_path))) == (0, 1), mine.stdout
    assert "website-audit:own-" in mine.stdout
    next((tmp_path / "demo" / "mail").glob("*.eml")).unlink()
    failed = run(*demo, module="examples.website_audit.demo")
    assert failed.returncode == 1
    assert "FAILED: 1 delivery accepted, but" in failed.stdout
    assert "holds 0 mails" in failed.stdout
