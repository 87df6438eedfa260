"""``postroom init``: a configuration to start from."""

from __future__ import annotations

import os
from pathlib import Path

import typer

from dispatcher.cli.options import given_file
from dispatcher.cli.output import say

TEMPLATE = """\
# postroom.toml      postroom config check: every problem at once, with its path.   postroom config show: effective values and their source.
# Any key from the environment, two underscores between levels:  POSTROOM_DISPATCHER__CONCURRENCY=50
# Durations carry a unit ("90s", "15m", "3d"); a bare number is refused. Secrets are references only: env:NAME or file:PATH.
# Relative paths are relative to the folder of this file.

[database]
url = "sqlite:///var/postroom.db"      # or postgresql://user@host/name; with a password: "env:DATABASE_URL"
# schema = "outbox"                    # PostgreSQL only; default: the connection's search path

[defaults]                             # what a delivery gets when its producer does not say
account = "main"
# from = "Reports <reports@example.com>"
# when_unsure = "hold"                 # hold | send_again; an account may differ

[dispatcher]
# lease = "60s"                        # renewed while a send is under way; not the longest send
# poll_interval = "1s"
# concurrency = 100
# shutdown_grace = "30s"

[accounts.main]                        # one .eml per message: nothing is sent by accident
provider = "file"
directory = "var/mail"
# retry = { attempts = 50, window = "24h", first_delay = "5s", max_delay = "1h" }

# [accounts.smtp]
# provider = "smtp"
# host = "smtp.example.com"
# port = 587
# tls = "starttls"                     # starttls | implicit | none
# username = "env:SMTP_USER"
# password = "file:/run/secrets/smtp-password"
# timeouts = { connect = "10s", command = "5m", final_reply = "10m" }

# [accounts.bulk]
# provider = "resend"
# api_key = "env:RESEND_API_KEY"

# [jobs]                               # for jobs declared in Python: postroom jobs work
# modules = ["reports.jobs"]           # where they are declared
# concurrency = 4                      # runs at once in one process
# alerts_to = ["ops@example.com"]      # told once of each run that failed or is overdue
"""


def init(context: typer.Context) -> int:
    """Write postroom.toml (SQLite under var/, mail into a folder). Never overwrites."""
    from outbox.settings import FILE_NAME, named_file

    file = named_file(given_file(context), os.environ) or Path(FILE_NAME)
    folder = file.parent / "var"
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with file.open("x", encoding="utf-8") as written:
            written.write(TEMPLATE)
    except FileExistsError:
        # What was asked for is there, and nothing was lost: a set-up script may run again.
        say(f"{file} is there already; it was left as it is")
        return 0
    say(f"wrote {file} (SQLite under {folder}, mail into {folder / 'mail'})")
    say('next: "postroom migrate", then "postroom dispatch"')
    return 0
