"""The seam between a dispatcher and a provider: message in, outcome out.

An adapter turns one :class:`Message` into one request, sends it once, and says
what the answer *proves*. It never retries, never sleeps, never decides what
happens next. Two calls of the permit order its work:

1. ``await permit.transmitting(...)`` once, at the last point before the first
   byte of the message can leave (SMTP: after the RCPT replies, before DATA;
   HTTP: with a connection slot in hand). When it returns, the fact that bytes
   may leave is committed.
2. ``permit.check()`` just before the first body byte, and again before the
   byte that makes the message complete (SMTP: the final dot).

Both raise :class:`Withheld` when sending is no longer allowed; the adapter
lets that exception through. Whatever else an adapter raises is read as
``Unavailable("adapter_error")`` before ``transmitting`` returned and as
``InDoubt("adapter_error")`` after it: an exception never proves that nothing
left.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

# --------------------------------------------------------------------------- #
# The message
# --------------------------------------------------------------------------- #


@dataclass(frozen=True, slots=True)
class Address:
    """One mailbox: ``address`` as ``local@domain`` (Unicode), ``name`` decoded text, may be ""."""

    address: str
    name: str = ""


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file that travels with the message.

    ``content`` is the bytes captured at enqueue. ``content_id`` without angle
    brackets makes it inline (``cid:``); ``content_type`` is ``type/subtype``, with no
    parameter but ``charset``.
    """

    filename: str
    content: bytes = field(repr=False)
    content_type: str = "application/octet-stream"
    content_id: str | None = None


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    """List-Unsubscribe targets (``mailto:`` or ``https:``); ``one_click`` is RFC 8058."""

    urls: tuple[str, ...]
    one_click: bool = False


@dataclass(frozen=True, slots=True)
class Message:
    """One message, ready to be rendered; equal on every attempt.

    ``to``, ``cc`` and ``bcc`` are what the producer wrote (they make the
    headers). ``recipients`` are the addresses this attempt is for: all of them
    on the first attempt, only those proved not taken on a later one. An HTTP
    adapter sends to ``recipients`` only; an SMTP envelope names only them.

    ``correlation`` is the UUID under which the outside knows this delivery;
    ``idempotency_key`` starts with it and may carry a suffix. ``date`` is the
    instant the producer asked for, never the instant of the attempt.
    ``options`` are the producer's options for this one provider.
    ``kept``, where it is given, is the request as it was first sent, byte for
    byte: an adapter that replays sends it instead of rendering anew.
    """

    correlation: str
    idempotency_key: str
    message_id: str
    date: datetime
    sender: Address
    to: tuple[Address, ...]
    recipients: tuple[str, ...]
    subject: str = ""
    text: str | None = None
    html: str | None = None
    cc: tuple[Address, ...] = ()
    bcc: tuple[Address, ...] = ()
    reply_to: tuple[Address, ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    attachments: tuple[Attachment, ...] = ()
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, str] = field(default_factory=dict)
    unsubscribe: Unsubscribe | None = None
    auto_submitted: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    kept: bytes | None = field(default=None, repr=False)


# --------------------------------------------------------------------------- #
# Outcomes: a closed union. Each settles only its own attempt.
# --------------------------------------------------------------------------- #


@dataclass(frozen=True, slots=True)
class Accepted:
    """The provider has it. ``message_id`` is the provider's own id, if it gave one."""

    message_id: str | None = None
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class Duplicate:
    """ "This key was already taken", without the id of what was taken."""

    reason: str = ""


@dataclass(frozen=True, slots=True)
class Rejected:
    """Refused for good. ``code`` is the provider's (``550``, ``validation_error``)."""

    reason: str
    code: str = ""


@dataclass(frozen=True, slots=True)
class Throttled:
    """Not taken; come back in ``retry_after`` seconds (None: the provider did not say)."""

    retry_after: float | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Unavailable:
    """Certainly not sent: DNS, refused, TLS, an SMTP 4yz reply at any point.

    ``counted`` is False for a wait inside this process (a connection pool):
    it uses up no attempt.
    """

    reason: str
    code: str = ""
    counted: bool = True


BlockKind: TypeAlias = Literal["credentials", "permission", "suspended", "quota", "sender_domain"]


@dataclass(frozen=True, slots=True)
class AccountBlocked:
    """The account, or only one sender domain of it (``scope``), may not send."""

    kind: BlockKind
    reason: str
    scope: str = ""
    retry_after: float | None = None


@dataclass(frozen=True, slots=True)
class InDoubt:
    """Bytes may have left and no proof came back."""

    reason: str


@dataclass(frozen=True, slots=True)
class InFlight:
    """The provider is still working on this key; ask again after ``retry_after`` seconds."""

    retry_after: float | None = None


@dataclass(frozen=True, slots=True)
class KeyMismatch:
    """The provider has this key with another body."""

    reason: str = ""


Outcome: TypeAlias = (
    Accepted
    | Duplicate
    | Rejected
    | Throttled
    | Unavailable
    | AccountBlocked
    | InDoubt
    | InFlight
    | KeyMismatch
)


@dataclass(frozen=True, slots=True)
class Result:
    """What one attempt came to.

    ``outcome`` holds for every recipient of the attempt that ``recipients``
    (address -> outcome) does not name. ``status_code`` is the HTTP status or
    the last SMTP reply code; ``detail`` is the raw answer, redacted and short.
    """

    outcome: Outcome
    recipients: Mapping[str, Outcome] = field(default_factory=dict)
    status_code: int | None = None
    detail: str = ""


# --------------------------------------------------------------------------- #
# Look-up
# --------------------------------------------------------------------------- #


@dataclass(frozen=True, slots=True)
class Inquiry:
    """The question whether a message was taken: everything that may identify it there."""

    correlation: str
    idempotency_key: str
    message_id: str
    recipients: tuple[str, ...]
    first_transmitted_at: datetime


@dataclass(frozen=True, slots=True)
class Found:
    """The provider has a row that carries our value and is not older than the question."""

    message_id: str | None = None


@dataclass(frozen=True, slots=True)
class Absent:
    """The provider has no such row, as far as this answer goes."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """The look-up itself failed, was cut short, or answered something else."""

    reason: str


Finding: TypeAlias = Found | Absent | Unknown


# --------------------------------------------------------------------------- #
# Permit and provider
# --------------------------------------------------------------------------- #


class Withheld(Exception):
    """Sending is no longer allowed; nothing has left, or the message is still incomplete.

    ``reason``: ``stopped`` (cancel or hold was asked), ``too_late``
    (``send_before`` or key retention passed), ``lease`` (not ours any more),
    ``shutdown`` (this process is stopping).
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def digest(content: bytes) -> str:
    """SHA-256 of a rendered request, in hex."""
    return hashlib.sha256(content).hexdigest()


class Permit(Protocol):
    """One attempt's leave to send."""

    async def transmitting(self, recipients: Sequence[str], request: bytes) -> None:
        """Commit that ``request`` may now leave for ``recipients``; raises :class:`Withheld`.

        ``request`` is the whole rendered request, without credentials: its digest goes
        into the journal, and where a provider can be asked again under the same key, it
        is kept and comes back as :attr:`Message.kept`.
        """
        ...

    def check(self) -> None:
        """Last look before bytes leave, without I/O; raises :class:`Withheld`."""
        ...


MeansName: TypeAlias = Literal["replay", "look_up"]


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a provider really offers when an answer was lost. Data, not behaviour.

    Only what the provider documents stands here; what is merely likely is left
    out, and an account may be told to trust it.
    """

    delivers: bool = True
    """False for accounts that send nothing to anybody (``file``, ``memory``)."""
    means: tuple[MeansName, ...] = ()
    """How doubt is settled, the strongest first."""
    replay: Literal["none", "same_response", "duplicate_error"] = "none"
    duplicate_is_proof: bool = False
    """Whether "this key was already taken" proves that the message was."""
    key_retention: float = 0.0
    """Seconds for which the provider remembers a key, before any margin."""
    stores_refusals: bool = False
    """Whether a refusal is remembered under its key and given again."""
    look_up: Literal["none", "by_key", "by_operation_id", "by_message_id", "heuristic"] = "none"
    index_lag: float | None = None
    """Seconds after which a look-up shows what was taken; None: not documented."""
    look_up_retention: float | None = None
    """Seconds for which a look-up finds what was taken; None: not limited."""
    events: bool = False
    """Whether authentic events carry our value."""
    per_recipient_results: bool = False
    max_message_bytes: int | None = None
    max_recipients: int | None = None


@runtime_checkable
class Provider(Protocol):
    """One configured account. ``send`` may run many times at once in one event loop."""

    name: str
    capabilities: Capabilities
    longest_send: float
    """Seconds from the mark until the last byte has left or the answer is given up."""

    @property
    def identity(self) -> str:
        """Adapter, endpoint and key scope as one string; no secret can be read from it."""
        ...

    async def send(self, message: Message, permit: Permit) -> Result: ...

    async def aclose(self) -> None: ...


@runtime_checkable
class LooksUp(Protocol):
    """What a provider whose ``capabilities.look_up`` is not ``none`` can do besides."""

    async def look_up(self, inquiry: Inquiry) -> Finding: ...
