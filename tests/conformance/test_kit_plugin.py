"""The pytest plugin, as somebody's test suite meets it: in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PLUGIN = "dispatcher.pytest_plugin"

JOBS = """
import outbox
from outbox import Email
from outbox.periods import weekly

@outbox.job("website-audit", period=weekly("mon"), due="+8h", useful_for="3d")
def website_audit(run):
    with run.finish() as tx:
        tx.enqueue(Email(to="ana@example.org", subject="Audit", text="7 findings"), name="owner")
"""

PASSING = """
from jobs import website_audit

folders = []

def test_the_owner_gets_one_mail(postroom):
    folders.append(postroom.path.parent)
    postroom.run(website_audit, subject="site-42", period="2026-W48", crash_at="before-commit")
    assert postroom.enqueued() == []
    postroom.run(website_audit, subject="site-42", period="2026-W48")
    [d] = postroom.enqueued()
    assert d.key == "website-audit:site-42:2026-W48:owner"
    assert d.message.to == ("ana@example.org",)

def test_each_test_has_an_outbox_of_its_own(postroom):
    assert postroom.nothing_enqueued() and postroom.runs() == []
    postroom.assert_crash_safe(website_audit, subject="site-42", period="2026-W48")

def test_nothing_stays_on_the_disk():
    assert len(folders) == 1
    assert not folders[0].exists()

def test_it_can_be_delivered(postroom, tmp_path):
    assert list(tmp_path.iterdir()) == []
    postroom.run(website_audit, subject="site-42", period="2026-W48")
    [sent] = postroom.deliver()
    assert (sent.subject, sent.recipients) == ("Audit", ("ana@example.org",))
    assert postroom.deliver() == []
    postroom.assert_enqueued(subject="Audit", state="accepted")
"""

FAILING = """
from jobs import website_audit

def test_the_owner_gets_another_mail(postroom):
    postroom.run(website_audit, subject="site-42", period="2026-W48")
    postroom.assert_enqueued(to="bob@example.org", subject="Audit")
"""

WITHOUT = """
import sys

def test_nothing_was_imported():
    loaded = {name.partition(".")[0] for name in sys.modules}
    assert "dispatcher" in loaded
    assert not loaded & {"outbox", "providers", "sqlalchemy", "pydantic", "httpx", "alembic"}
"""


def suite(
    folder: Path, tests: str, *options: str, **environ: str
) -> subprocess.CompletedProcess[str]:
    """Run somebody's tests, with nothing of this project's own configuration."""
    (folder / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    (folder / "jobs.py").write_text(JOBS)
    (folder / "test_jobs.py").write_text(tests)
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("POSTROOM_", "PYTEST_"))}
    path = os.pathsep.join([str(folder), str(ROOT)])
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options, "test_jobs.py"],
        cwd=folder,
        env={**kept, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", **environ},
        capture_output=True,
        text=True,
        timeout=120,
    )


def alone(folder: Path, tests: str) -> subprocess.CompletedProcess[str]:
    """With this plugin and no other."""
    return suite(folder, tests, "-p", PLUGIN, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")


def test_a_suite_that_uses_the_fixture_passes(tmp_path: Path) -> None:
    """The example of the documentation, an outbox for each test, and a delivery to nobody."""
    done = alone(tmp_path, PASSING)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 passed" in done.stdout


def test_a_failure_shows_what_was_enqueued(tmp_path: Path) -> None:
    """The message stands in the report, with the test's own line and none of the kit's."""
    done = alone(tmp_path, FAILING)
    assert done.returncode == 1
    assert (
        "E       AssertionError: no delivery was enqueued with to='bob@example.org', "
        "subject='Audit'; 1 was, nearest first:\n"
        "E         website-audit:site-42:2026-W48:owner to ana@example.org, "
        '"Audit" (pending)\n'
        "E           to: ana@example.org\n"
        "E               wanted bob@example.org\n"
    ) in done.stdout
    assert '>       postroom.assert_enqueued(to="bob@example.org", subject="Audit")' in done.stdout
    assert "asserting.py" not in done.stdout


def test_without_the_fixture_nothing_is_imported(tmp_path: Path) -> None:
    """A suite that has the plugin in its environment and does not use it pays for nothing."""
    done = alone(tmp_path, WITHOUT)
    assert done.returncode == 0, done.stdout + done.stderr


_FORKED = """
import os
import sys
from outbox.testing.files import template
path = template()
if not os.fork():
    sys.exit()
os.wait()
print(path.exists(), path)
"""


def test_the_migrated_template_lives_as_long_as_its_process(tmp_path: Path) -> None:
    """A process that a test forks off does not take it along; the last one cleans up."""
    done = subprocess.run(
        [sys.executable, "-c", _FORKED],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    there, path = done.stdout.split()
    assert there == "True"
    assert Path(path).is_relative_to(tmp_path)
    assert list(tmp_path.iterdir()) == []


_LOADED = """
import sys
import outbox
print("outbox.testing" in sys.modules)
import outbox.testing
print(sorted({"_pytest", "dispatcher", "providers", "alembic"} & set(sys.modules)))
"""


def test_the_kit_is_no_burden_to_production() -> None:
    """``import outbox`` loads nothing of it, and it needs neither pytest nor a dispatcher."""
    done = subprocess.run(
        [sys.executable, "-c", _LOADED], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["False", "[]"]


def test_an_installed_distribution_brings_the_fixture(tmp_path: Path) -> None:
    """By its entry point: no option, no conftest.py, beside whatever plugins there are."""
    installed = tmp_path / "postroom_of_this_test-1.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: postroom-of-this-test\nVersion: 1\n"
    )
    (installed / "entry_points.txt").write_text(f"[pytest11]\npostroom = {PLUGIN}\n")
    (installed / "RECORD").write_text("")
    done = suite(tmp_path, PASSING, "-W", "ignore")
    assert done.returncode == 0, done.stdout + done.stderr
    listed = suite(tmp_path, PASSING, "-W", "ignore", "--fixtures")
    assert "postroom [function scope]" in listed.stdout or "postroom -- " in listed.stdout
    assert "An outbox for this test" in listed.stdout
