"""The configuration: what it accepts, what it refuses and in which words."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import pytest

from dispatcher.backoff import RetryPolicy
from dispatcher.config import ConfigError, load
from dispatcher.config_report import (
    sources,
    unfit_for_production,
    unreadable,
    unreadable_web,
    warnings,
)
from outbox.settings import database_settings
from outbox.states import WhenUnsure
from providers.settings import Secret

SMTP = '[accounts.main]\nprovider = "smtp"\nhost = "mail.example.com"\n'


def written(folder: Path, text: str) -> Path:
    file = folder / "postroom.toml"
    file.write_text(text, encoding="utf-8")
    return file


def problems(file: Path | None, environ: Mapping[str, str] | None = None) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(file, environ or {})
    return [str(problem) for problem in caught.value.problems]


# -- what it means ------------------------------------------------------------- #


def test_without_a_file_mail_goes_into_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing configured: SQLite under var/, account main = file, both in the working directory."""
    monkeypatch.chdir(tmp_path)
    config = load(environ={})
    assert config.file is None
    assert config.database_url({}) == f"sqlite:///{tmp_path}/var/postroom.db"
    assert list(config.accounts) == ["main"]
    assert config.accounts["main"].provider == "file"
    assert config.accounts["main"].settings.model_dump()["directory"] == tmp_path / "var/mail"
    assert (config.defaults.account, config.defaults.sender) == ("main", None)
    assert config.dispatcher.lease == timedelta(seconds=60)
    assert config.schema is None


def test_every_key_is_read(tmp_path: Path) -> None:
    """A whole file comes out as written, with the types that the dispatcher works with."""
    file = written(
        tmp_path,
        """
        [database]
        url = "postgresql://postroom@db.example.com/shop"
        schema = "outbox"
        [defaults]
        account = "bulk"
        from = "Reports <reports@example.com>"
        when_unsure = "send_again"
        [dispatcher]
        lease = "90s"
        poll_interval = "500ms"
        concurrency = 7
        shutdown_grace = "0s"
        [accounts.bulk]
        provider = "smtp"
        host = "mail.example.com"
        username = "env:USER_NAME"
        password = "file:secrets/password"
        retry = { attempts = 3, window = "2h", first_delay = "1s", max_delay = "1m" }
        [accounts.other]
        provider = "memory"
        when_unsure = "hold"
        """,
    )
    config = load(file, {})
    assert config.schema == "outbox"
    assert config.database_url({}) == "postgresql://postroom@db.example.com/shop"
    assert config.defaults.sender == "Reports <reports@example.com>"
    assert config.dispatcher.poll_interval == timedelta(milliseconds=500)
    assert config.dispatcher.shutdown_grace == timedelta(0)
    bulk = config.accounts["bulk"]
    assert bulk.when_unsure is WhenUnsure.SEND_AGAIN
    assert config.accounts["other"].when_unsure is WhenUnsure.HOLD
    assert bulk.retry == RetryPolicy(
        3, timedelta(hours=2), timedelta(seconds=1), timedelta(minutes=1)
    )
    assert bulk.settings.password == Secret(f"file:{tmp_path}/secrets/password")  # type: ignore[attr-defined]


def test_relative_paths_belong_to_the_file(tmp_path: Path) -> None:
    """A database and a mail folder lie beside the configuration, wherever the command is started."""
    file = written(
        tmp_path,
        '[database]\nurl = "sqlite:///db/x.db"\n[accounts.main]\nprovider = "file"\ndirectory = "m"',
    )
    config = load(file, {})
    assert config.database_url({}) == f"sqlite:///{tmp_path}/db/x.db"
    assert config.accounts["main"].settings.model_dump()["directory"] == tmp_path / "m"


def test_variables_lie_over_the_file(tmp_path: Path) -> None:
    """A variable wins, in any case, and names the account in lower case."""
    file = written(tmp_path, SMTP + '[accounts.with-dash]\nprovider = "memory"\n')
    config = load(
        file,
        {
            "POSTROOM_ACCOUNTS__MAIN__PORT": "2525",
            "POSTROOM_ACCOUNTS__MAIN__TIMEOUTS": '{ connect = "3s" }',
            "postroom_accounts__main__retry__attempts": "9",
            "POSTROOM_ACCOUNTS__SECOND__PROVIDER": "file",
            "POSTROOM_ACCOUNTS__MAIN__USERNAME": '"1234"',
            "POSTROOM_ACCOUNTS__MAIN__PASSWORD": "env:PW",
            "POSTROOM_CONFIG": "/not/read/since/a/file/was/given.toml",
            "POSTROOM_TEST_POSTGRES_URL": "none",
        },
    )
    main = config.accounts["main"]
    assert main.settings.port == 2525  # type: ignore[attr-defined]
    assert main.settings.timeouts.connect == timedelta(seconds=3)  # type: ignore[attr-defined]
    assert main.settings.username == "1234"  # type: ignore[attr-defined]
    assert main.retry.attempts == 9
    assert set(config.accounts) == {"main", "with-dash", "second"}


def test_the_file_may_be_named_by_a_variable(tmp_path: Path) -> None:
    """POSTROOM_CONFIG names the file when nothing on the command line does."""
    file = written(tmp_path, '[defaults]\naccount = "x"\n[accounts.x]\nprovider = "memory"')
    assert load(environ={"POSTROOM_CONFIG": str(file)}).defaults.account == "x"


def test_a_url_by_reference_is_read_when_it_is_needed(tmp_path: Path) -> None:
    """env: and file: URLs are resolved at use, and a relative SQLite path in them anchored."""
    file = written(tmp_path, '[database]\nurl = "env:DATABASE_URL"')
    config = load(file, {})
    assert config.database_url({"DATABASE_URL": "postgresql://u:p@h/db"}) == "postgresql://u:p@h/db"
    assert config.database_url({"DATABASE_URL": "sqlite:///a.db"}) == f"sqlite:///{tmp_path}/a.db"
    with pytest.raises(ConfigError, match="the environment variable DATABASE_URL"):
        config.database_url({})
    (tmp_path / "url").write_text("sqlite:////abs.db\n")
    written(tmp_path, '[database]\nurl = "file:url"')
    assert load(file, {}).database_url({}) == "sqlite:////abs.db"


def test_the_outbox_agrees_about_the_database(tmp_path: Path) -> None:
    """A job and a dispatcher read the same database from the same file and variables."""
    file = written(tmp_path, '[database]\nurl = "sqlite:///x.db"\n[jobs]\nunknown = "here"')
    assert database_settings(file, {}) == (f"sqlite:///{tmp_path}/x.db", None)
    assert database_settings(tmp_path, {}).url == f"sqlite:///{tmp_path}/x.db"
    environ = {"POSTROOM_DATABASE__URL": "sqlite:///y.db", "POSTROOM_DATABASE__SCHEMA": "s"}
    written(tmp_path, "")
    both = load(file, {"POSTROOM_DATABASE__URL": "sqlite:///y.db"})
    assert database_settings(file, environ) == (f"sqlite:///{tmp_path}/y.db", "s")
    assert both.database_url({}) == database_settings(file, environ).url


# -- what it refuses ------------------------------------------------------------- #

HOLDS_PASSWORD = (
    "database.url: holds a password: put the whole URL into a variable or a file of its own "
    'and write "env:NAME" or "file:PATH"'
)
MYSQL = (
    "database.url: mysql is not supported: use sqlite:///path/to/file or "
    "postgresql://user@host/name"
)
BAD_NAME = (
    "accounts.Big: is no account's name: a-z, 0-9, _ and -, at most 64, beginning with a letter "
    "or digit"
)
REFUSED: list[tuple[str, str]] = [
    (
        "[nothing]\n",
        "nothing: is not a known key: known are accounts, database, defaults, dispatcher, jobs, web",
    ),
    ('[web.private]\nlisten = "x:1"', "web.private: is not a known key: known are public"),
    (
        '[web.public]\nlisten = "8026"',
        'web.public.listen: is no address to listen on: write "127.0.0.1:8026" or "[::1]:8026"',
    ),
    (
        '[web.public]\ntick_token = "s3cr3t"',
        'web.public.tick_token: a secret is written as a reference: "env:NAME" or "file:PATH"',
    ),
    ("database = 5\n", "database: is not a table: write [database]"),
    ('[database]\nshema = "x"', 'database.shema: is not a known key: did you mean "schema"?'),
    ("[database]\nurl = 5", "database.url: is not text: write it in quotes"),
    (
        '[database]\nurl = "postgresql://u:s3cr3t@h/db"',
        HOLDS_PASSWORD,
    ),
    (
        '[database]\nurl = "postgresql://u@h/db?password=s3cr3t"',
        HOLDS_PASSWORD,
    ),
    (
        '[database]\nurl = "mysql://h/db"',
        MYSQL,
    ),
    (
        '[database]\nurl = "sqlite:///x.db"\nschema = "s"',
        "database.schema: SQLite has no schemas: leave it out",
    ),
    (
        '[defaults]\naccount = "mein"',
        "defaults.account: there is no [accounts.mein]; configured: main",
    ),
    ('[defaults]\nfrom = "nobody"', 'defaults.from: "nobody" has no domain'),
    (
        '[defaults]\nwhen_unsure = "maybe"',
        'defaults.when_unsure: is not one of "hold", "send_again"',
    ),
    (
        "[dispatcher]\nlease = 60",
        'dispatcher.lease: 60 has no unit: write a duration like "90s", "15m" or "3d"',
    ),
    ('[dispatcher]\nlease = "4s"', "dispatcher.lease: is 4s; at least 5s"),
    ('[dispatcher]\nlease = "2h"', "dispatcher.lease: is 2h; at most 1h"),
    ('[dispatcher]\npoll_interval = "0s"', "dispatcher.poll_interval: is 0s; at least 0.05s"),
    (
        '[dispatcher]\npoll_interval = "10s"\nlease = "5s"',
        "dispatcher: poll_interval (10s) must be shorter than lease (5s)",
    ),
    ("[dispatcher]\nconcurrency = 0", "dispatcher.concurrency: is 0; at least 1"),
    ("[dispatcher]\nconcurrency = 10001", "dispatcher.concurrency: is 10001; at most 10000"),
    ('[dispatcher]\nconcurrency = "many"', "dispatcher.concurrency: is not a whole number"),
    (
        '[dispatcher]\npoll_intervall = "1s"',
        'dispatcher.poll_intervall: is not a known key: did you mean "poll_interval"?',
    ),
    ("accounts = 1", "accounts: is not a table: write [accounts.NAME]"),
    ("[accounts]\nmain = 1", "accounts.main: is not a table: write [accounts.main]"),
    (
        '[accounts.main]\nprovider = "file"\n[accounts.Big]\nprovider = "file"',
        BAD_NAME,
    ),
    ("[accounts.main]\n", "accounts.main.provider: is missing"),
    ('[accounts.main]\nprovider = "smtp"', "accounts.main.host: is missing"),
    (SMTP + "port = 99999", "accounts.main.port: is 99999; at most 65535"),
    (SMTP + 'hots = "x"', 'accounts.main.hots: is not a known key: did you mean "host"?'),
    (
        SMTP + 'retri = "x"',
        'accounts.main.retri: is not a known key: did you mean "retry"?',
    ),
    (
        SMTP + 'timeouts = { conect = "1s" }',
        'accounts.main.timeouts.conect: is not a known key: did you mean "connect"?',
    ),
    (
        SMTP + "timeouts = { connect = 5 }",
        'accounts.main.timeouts.connect: 5 has no unit: write a duration like "90s", "15m" or "3d"',
    ),
    (SMTP + "timeouts = 5", "accounts.main.timeouts: is not a table: write { key = value }"),
    (
        SMTP + 'tls = "maybe"',
        'accounts.main.tls: is not one of "starttls", "implicit", "none"',
    ),
    (
        SMTP + 'username = "u"\npassword = "s3cr3t-Example!"',
        'accounts.main.password: a secret is written as a reference: "env:NAME" or "file:PATH"',
    ),
    (SMTP + "retry = { attempts = 0 }", "accounts.main.retry.attempts: is 0; at least 1"),
    (
        SMTP + 'retry = { first_delay = "2h", max_delay = "1h" }',
        "accounts.main.retry: first_delay (2h) must not be longer than max_delay (1h)",
    ),
    (
        '[accounts.main]\nprovider = "resend"\napi_kee = "env:X"',
        'accounts.main.api_kee: is not a known key: did you mean "api_key"?',
    ),
]


@pytest.mark.parametrize(("text", "line"), REFUSED, ids=[line for _, line in REFUSED])
def test_a_problem_is_one_line_with_its_key(text: str, line: str, tmp_path: Path) -> None:
    """Each problem names the key's path and says what to write; no value that may be secret."""
    found = problems(written(tmp_path, text))
    assert line in found
    assert "s3cr3t" not in "".join(found)


def test_an_unknown_provider_is_told_from_a_known_one(tmp_path: Path) -> None:
    """A mistyped provider gets a suggestion, with the key's path in front."""
    [line] = problems(written(tmp_path, '[accounts.main]\nprovider = "smpt"'))
    assert line.startswith('accounts.main.provider: unknown provider "smpt", did you mean "smtp"?')


def test_all_problems_come_at_once(tmp_path: Path) -> None:
    """A person corrects a file once, not once for each line; the variable that did it is named."""
    file = written(
        tmp_path,
        SMTP + "port = 0\n[dispatcher]\nlease = 60\n[defaults]\naccount = 'x'\n[nonsense]\n",
    )
    found = problems(file, {"POSTROOM_DISPATCHER__CONCURRENCY": "0"})
    assert [line.partition(":")[0] for line in found] == [
        "nonsense",
        "dispatcher.lease",
        "dispatcher.concurrency",
        "accounts.main.port",
        "defaults.account",
    ]
    assert "dispatcher.concurrency: is 0; at least 1 (POSTROOM_DISPATCHER__CONCURRENCY)" in found


def test_a_syntax_error_names_its_place(tmp_path: Path) -> None:
    """TOML that cannot be read is one line with file, line and column."""
    file = written(tmp_path, "[database]\nurl = \n")
    [line] = problems(file)
    assert line.startswith(f"{file}, line 2, column 7: ")
    file.write_bytes(b"\xff")
    assert problems(file) == [f"{file}: is not UTF-8 text (byte 0)"]


def test_a_file_that_was_asked_for_must_be_there(tmp_path: Path) -> None:
    """A mistyped --config must not mean the defaults."""
    missing = tmp_path / "none.toml"
    assert problems(missing) == [f'{missing}: there is no such file; "postroom init" writes one']
    assert problems(None, {"POSTROOM_CONFIG": str(missing)})[0].startswith(f"{missing}: ")


def test_a_forgotten_underscore_is_refused() -> None:
    """POSTROOM_DATABASE_URL would be ignored, and the mail written into another database."""
    wrong = {"POSTROOM_DATABASE_URL": "postgresql://u:s3cr3t@h/db"}
    line = (
        "POSTROOM_DATABASE_URL: levels are separated by two underscores: write "
        "POSTROOM_DATABASE__URL"
    )
    assert problems(None, wrong) == [line]


def test_a_password_in_a_bad_url_is_never_repeated() -> None:
    """What stands where a port would be may be a part of the password."""
    environ = {"POSTROOM_DATABASE__URL": "postgresql://u:s3@cr:3t@h/db"}
    [line] = problems(None, environ)
    assert line.startswith("database.url: cannot be read: ")
    assert "cr" not in line.partition("cannot be ")[2].replace("character", "")


# -- what is reported ------------------------------------------------------------- #


def test_each_value_names_its_source(tmp_path: Path) -> None:
    """Showing the configuration tells file, variable and default apart."""
    file = written(tmp_path, SMTP + 'timeouts = { connect = "3s" }')
    config = load(file, {"POSTROOM_ACCOUNTS__MAIN__RETRY": "{ attempts = 3 }"})
    found = {setting.key: (setting.value, setting.source) for setting in sources(config)}
    assert found["accounts.main.host"] == ("mail.example.com", str(file))
    assert found["accounts.main.timeouts.connect"] == ("3s", str(file))
    assert found["accounts.main.timeouts.final_reply"] == ("10m", "default")
    assert found["accounts.main.retry.attempts"] == (3, "POSTROOM_ACCOUNTS__MAIN__RETRY")
    assert found["database.url"] == ("sqlite:///var/postroom.db", "default")
    assert found["dispatcher.lease"] == ("1m", "default")


def test_a_shown_configuration_holds_no_secret(tmp_path: Path) -> None:
    """B96: references are shown, and a URL from the environment without its password."""
    file = written(tmp_path, SMTP + 'username = "u"\npassword = "env:PW"')
    url = "postgresql://app:s3cr3t-Example!@h/db?password=s3cr3t-Example!"
    shown = {s.key: s.value for s in sources(load(file, {"POSTROOM_DATABASE__URL": url}))}
    assert shown["accounts.main.password"] == "env:PW"
    assert shown["database.url"] == "postgresql://app@h/db?password=***"


def test_checking_reads_every_reference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each secret that cannot be read is named; a readable one is not printed."""
    monkeypatch.delenv("MISSING", raising=False)
    monkeypatch.setenv("THERE", "s3cr3t-Example!")
    text = (
        SMTP + 'username = "env:THERE"\npassword = "env:MISSING"\n[database]\nurl = "env:MISSING"'
    )
    config = load(written(tmp_path, text), {})
    assert [str(problem) for problem in unreadable(config)] == [
        "database.url: the environment variable MISSING is not set",
        "accounts.main.password: the environment variable MISSING is not set",
    ]


def test_a_token_is_needed_only_where_it_is_asked_for(tmp_path: Path) -> None:
    """The dispatcher starts without the secrets of the web process; the check of all reads them."""
    config = load(written(tmp_path, '[web.public]\ntick_token = "env:MISSING"'), {})
    assert unreadable(config) == []
    assert [str(problem) for problem in unreadable_web(config)] == [
        "web.public.tick_token: the environment variable MISSING is not set"
    ]


def test_checking_looks_for_files(tmp_path: Path) -> None:
    """A certificate file that is not there is found by the check, not by the first mail."""
    config = load(written(tmp_path, SMTP + 'ca_file = "ca.pem"'), {})
    assert [str(problem) for problem in unreadable(config)] == [
        f"accounts.main.ca_file: {tmp_path}/ca.pem is not there or cannot be read"
    ]
    (tmp_path / "ca.pem").touch()
    assert unreadable(config) == []


def test_production_wants_a_default_account_that_delivers(tmp_path: Path) -> None:
    """The accounts file and memory deliver to nobody; as the default account they are refused there."""
    file = written(tmp_path, '[accounts.main]\nprovider = "file"\n')
    [problem] = unfit_for_production(load(file, {}))
    assert problem.key == "defaults.account"
    assert "delivers to nobody" in problem.text
    assert unfit_for_production(load(written(tmp_path, SMTP), {})) == []


def test_unsafe_pairs_are_told(tmp_path: Path) -> None:
    """A poll as long as a lease, and a grace shorter than an answer, work but surprise."""
    pair = '[dispatcher]\npoll_interval = "3s"\nlease = "5s"\nshutdown_grace = "5m"\n'
    found = [problem.key for problem in warnings(load(written(tmp_path, SMTP + pair), {}))]
    assert found == ["dispatcher.poll_interval", "dispatcher.shutdown_grace"]
    calm = '[dispatcher]\nshutdown_grace = "10m"\n'
    assert warnings(load(written(tmp_path, SMTP + calm), {})) == []
