"""One delivery or many: the argument and the options by which the verbs are told which.

They are the options of ``deliveries list``, so that a list that was looked at can be acted
on by changing one word. One difference: the verbs' ``--reason`` is *why you do it*; the
reason that a row carries is ``--state-reason`` (which the list knows, too).
"""

from __future__ import annotations

import functools
import getpass
import inspect
import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dispatcher.cli.options import WrongUsage
from dispatcher.cli.selection import known_reason, known_states, since

if TYPE_CHECKING:
    from dispatcher.config import Config
    from outbox.reports import Filter

_REFERENCE = Annotated[
    str | None,
    typer.Argument(metavar="KEY", help="One delivery: its key, id, Message-ID or provider's id."),
]
_OPTIONS: dict[str, Any] = {
    "state": Annotated[
        list[str] | None,
        typer.Option(metavar="STATE", help="Those in this state; may be repeated."),
    ],
    "account": Annotated[
        str | None,
        typer.Option("--account", "--from", metavar="NAME", help="Those that go by this account."),
    ],
    "key": Annotated[str | None, typer.Option(metavar="PREFIX", help="Those whose key begins so.")],
    "to": Annotated[str | None, typer.Option(metavar="ADDRESS", help="Those to this address.")],
    "state_reason": Annotated[
        str | None,
        typer.Option(metavar="REASON", help="Those held, failed or cancelled for this reason."),
    ],
    "tag": Annotated[str | None, typer.Option(metavar="TAG", help="Those with this tag.")],
    "tenant": Annotated[str | None, typer.Option(metavar="TENANT", help="Those of this tenant.")],
    "run_key": Annotated[str | None, typer.Option(metavar="KEY", help="Those of this run.")],
    "since": Annotated[
        str | None,
        typer.Option(metavar="T", help="Changed since: 2h, or 2026-11-29T03:00:00Z."),
    ],
}


@dataclass(frozen=True, slots=True)
class Chosen:
    """What was named: one delivery, or the options of a filter."""

    reference: str | None
    options: Mapping[str, Any]

    def target(self, config: Config, *, needs_state: bool = False) -> str | Filter:
        """One reference or one filter. Raises WrongUsage for both, or for neither: without a
        word about which deliveries are meant, none is."""
        from dispatcher import operator
        from outbox.reports import Filter

        named = {name: value for name, value in self.options.items() if value}
        if self.reference is not None:
            if named:
                options = ", ".join(f"--{name.replace('_', '-')}" for name in named)
                raise WrongUsage(f"name one delivery, or many by {options}; not both")
            return self.reference
        if not named:
            raise WrongUsage("say which: a KEY, or a filter like --state held or --account main")
        if needs_state and "state" not in named:
            raise WrongUsage("say of which state: --state failed; second copies are not for all")
        wanted = Filter(
            states=known_states(named.get("state", [])),
            key_prefix=named.get("key"),
            to=named.get("to"),
            reason=known_reason(named.get("state_reason"), "--state-reason"),
            tag=named.get("tag"),
            tenant=named.get("tenant"),
            run_key=named.get("run_key"),
            changed_since=since(named.get("since")),
        )
        return operator.by_account(config, wanted, named.get("account"))


def choosing(*, without: tuple[str, ...] = ()) -> Callable[[Callable[..., int]], Any]:
    """A command with the argument and the options above, which it gets as one ``chosen``."""
    options = {name: kind for name, kind in _OPTIONS.items() if name not in without}

    def decorate(command: Callable[..., int]) -> Callable[..., int]:
        @functools.wraps(command)
        def with_choice(context: typer.Context, **given: Any) -> int:
            chosen = Chosen(given.pop("reference"), {name: given.pop(name) for name in options})
            return command(context, chosen, **given)

        own = inspect.signature(command, eval_str=True).parameters.values()
        keyword = inspect.Parameter.KEYWORD_ONLY
        parameters = [
            inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context),
            inspect.Parameter("reference", keyword, default=None, annotation=_REFERENCE),
            *(inspect.Parameter(n, keyword, default=None, annotation=k) for n, k in options.items()),
            *(each for each in own if each.name not in {"context", "chosen"}),
        ]  # fmt: skip
        setattr(with_choice, "__signature__", inspect.Signature(parameters, return_annotation=int))  # noqa: B010
        with_choice.__annotations__ = {each.name: each.annotation for each in parameters}
        return with_choice

    return decorate


def actor(given: str | None) -> str:
    """Who acts: ``--actor``, else ``POSTROOM_ACTOR``, else user@host."""
    named = given or os.environ.get("POSTROOM_ACTOR")
    if named:
        return named
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a number that no name belongs to, as in a container
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"
