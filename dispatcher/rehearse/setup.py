"""What a rehearsal takes from the user's configuration. Plain values: they travel to children.

The fakes borrow from the account's own provider what it is known to offer (how long it knows
a key, how late its look-up is); where it offers nothing of the kind, :data:`KEY_RETENTION` and
:data:`INDEX_LAG` stand in.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from pathlib import Path

from dispatcher.backoff import RetryPolicy
from dispatcher.config import Account, Config, Database, Defaults, Dispatcher
from dispatcher.config_file import Document
from dispatcher.config_report import account_times
from dispatcher.rehearse.fakes import Traits
from outbox.states import WhenUnsure
from providers.memory import Settings

KEY_RETENTION = timedelta(hours=24)
"""How long a fake knows a key whose model knows none: the usual promise of providers."""
INDEX_LAG = timedelta(seconds=30)
"""How late a fake's look-up is whose model documents no lag."""
SENDER = "Rehearsal <rehearsal@example.com>"


@dataclass(frozen=True, slots=True)
class Setup:
    """One rehearsal: its scratch database, and the times of the configuration, in seconds."""

    url: str = field(repr=False)
    schema: str | None
    folder: str
    sender: str
    lease: float
    poll_interval: float
    shutdown_grace: float
    retry_attempts: int
    retry_window: float
    first_delay: float
    max_delay: float
    evidence_wait: float
    replay_margin: float
    assume_absent_after: float | None
    when_unsure: WhenUnsure
    longest_send: float
    key_retention: float
    index_lag: float

    @classmethod
    def of(
        cls, config: Config, account: Account, *, url: str, schema: str | None, folder: Path
    ) -> Setup:
        """The times of ``config`` and ``account``, on the scratch database at ``url``."""
        offers, loop = account.capabilities, config.dispatcher
        lag = INDEX_LAG.total_seconds() if offers.index_lag is None else offers.index_lag
        absent = account.assume_absent_after
        return cls(
            url=url,
            schema=schema,
            folder=str(folder),
            sender=config.defaults.sender or SENDER,
            lease=loop.lease.total_seconds(),
            poll_interval=loop.poll_interval.total_seconds(),
            shutdown_grace=loop.shutdown_grace.total_seconds(),
            retry_attempts=account.retry.attempts,
            retry_window=account.retry.window.total_seconds(),
            first_delay=account.retry.first_delay.total_seconds(),
            max_delay=account.retry.max_delay.total_seconds(),
            evidence_wait=account.evidence_wait.total_seconds(),
            replay_margin=account.replay_margin.total_seconds(),
            assume_absent_after=None if absent is None else absent.total_seconds(),
            when_unsure=account.when_unsure,
            longest_send=account_times(account).longest_send.total_seconds(),
            key_retention=offers.key_retention or KEY_RETENTION.total_seconds(),
            index_lag=lag,
        )

    @classmethod
    def read(cls, text: str) -> Setup:
        """What :meth:`written` wrote."""
        values = json.loads(text)
        return cls(**{**values, "when_unsure": WhenUnsure(values["when_unsure"])})

    def written(self) -> str:
        """As text for a child. It may hold the database's password: never on a command line."""
        return json.dumps(asdict(self))

    @property
    def traits(self) -> Traits:
        """The times of the fakes."""
        return Traits(self.longest_send, self.key_retention, self.index_lag)

    def config(self, account: str, *, slots: int = 20, still: bool = False) -> Config:
        """The configuration of a dispatcher that has this one account.

        still: it does not sweep while the drill runs. A process that stands still, or is cut
          off from its database, looks at nothing.
        """
        dispatcher = Dispatcher(
            lease=timedelta(seconds=self.lease),
            poll_interval=timedelta(seconds=self.poll_interval),
            concurrency=slots,
            shutdown_grace=timedelta(seconds=self.shutdown_grace),
        )
        if still:
            dispatcher = dispatcher.model_copy(update={"poll_interval": timedelta(hours=1)})
        return Config(
            document=Document(None, Path(self.folder), {}),
            database=Database(url=self.url, schema=self.schema),
            defaults=Defaults.model_validate({"account": account, "from": self.sender}),
            dispatcher=dispatcher,
            accounts={account: self._account(account)},
        )

    def _account(self, name: str) -> Account:
        absent = self.assume_absent_after
        return Account(
            name=name,
            provider="memory",
            when_unsure=self.when_unsure,
            retry=RetryPolicy(
                self.retry_attempts,
                timedelta(seconds=self.retry_window),
                timedelta(seconds=self.first_delay),
                timedelta(seconds=self.max_delay),
            ),
            settings=Settings(),
            evidence_wait=timedelta(seconds=self.evidence_wait),
            replay_margin=timedelta(seconds=self.replay_margin),
            assume_absent_after=None if absent is None else timedelta(seconds=absent),
        )
