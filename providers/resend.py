"""Resend: JSON over HTTP, with an idempotency key that is honoured for a day.

What it surprises with. One status means two things: 403 is a wrong key or an
unverified sender domain, 409 is "still working on it" or "that key had another
body", 429 is a rate or a quota. So ``name`` in the body decides, and the status
only where the name is unknown. A suppressed recipient is still answered 200.
Any 5xx, its own or one of the proxies before it, may follow a message that was
taken; the same key sent again gives the first answer.

Source: resend.com/docs/api-reference/errors, /docs/dashboard/emails/idempotency-keys.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated

from pydantic import AfterValidator

from providers.addresses import ascii_domain
from providers.classify import parse_retry_after
from providers.contract import (
    Accepted,
    AccountBlocked,
    Capabilities,
    InDoubt,
    InFlight,
    KeyMismatch,
    Message,
    Outcome,
    Permit,
    Rejected,
    Result,
    Throttled,
    Unavailable,
)
from providers.encoding import WireError
from providers.http import Answer, Engine, HttpClient
from providers.http_settings import HttpSettings, check_base_url
from providers.redact import redact
from providers.resend_request import render
from providers.settings import Secret

CAPABILITIES = Capabilities(
    means=("replay",),
    replay="same_response",
    key_retention=24 * 3600.0,
    events=True,
    max_message_bytes=40_000_000,
    max_recipients=50,
)


class Settings(HttpSettings):
    """One Resend account: an API key of one team."""

    api_key: Secret
    base_url: Annotated[str, AfterValidator(check_base_url)] = "https://api.resend.com"


def open_account(name: str, settings: Settings, *, transport: Engine | None = None) -> Resend:
    """The account ``name``. Raises ValueError, one line, when its key cannot be read."""
    return Resend(name, settings, transport)


class Resend:
    """One Resend account; see :class:`providers.contract.Provider`."""

    capabilities = CAPABILITIES

    def __init__(self, name: str, settings: Settings, transport: Engine | None = None) -> None:
        self.name = name
        self._settings = settings
        self._fingerprint = _fingerprint(_read_key(settings.api_key))
        timeouts = settings.timeouts
        self.longest_send = (timeouts.connect + timeouts.total).total_seconds()
        self._client = HttpClient(
            connections=settings.connections, timeouts=settings.timeouts, transport=transport
        )

    @property
    def identity(self) -> str:
        """Adapter, endpoint, and the start of a digest of the key last used."""
        return f"resend:{self._settings.base_url}:{self._fingerprint}"

    async def send(self, message: Message, permit: Permit) -> Result:
        """One POST. A key that cannot be read blocks the account before anything leaves."""
        try:
            key = _read_key(self._settings.api_key)
        except ValueError as error:
            return Result(AccountBlocked("credentials", redact(str(error))))
        self._fingerprint = _fingerprint(key)
        try:
            content = message.kept or render(message)
            domain = ascii_domain(message.sender.address.rpartition("@")[2]).lower()
        except WireError as error:
            return Result(Rejected(redact(str(error), [key]), "invalid_message"))
        if len(content) > (CAPABILITIES.max_message_bytes or 0):
            return Result(Rejected("the message is larger than 40 MB", "too_large"))
        reply = await self._client.post(
            f"{self._settings.base_url}/emails",
            headers={
                "Authorization": f"Bearer {key}",
                "Content-Type": "application/json",
                "Idempotency-Key": message.idempotency_key,
            },
            content=content,
            permit=permit,
            recipients=message.recipients,
            secrets=[key],
        )
        if isinstance(reply, Result):
            return reply
        outcome = read_answer(reply, sender_domain=domain, secrets=[key], now=datetime.now(UTC))
        return Result(outcome, {}, reply.status, reply.detail)

    async def aclose(self) -> None:
        await self._client.aclose()


def _read_key(secret: Secret) -> str:
    key = secret.reveal()
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise ValueError(f"api_key: what {secret} holds is no API key: it has to be one ASCII word")
    return key


def _fingerprint(key: str) -> str:
    # A prefix of a digest of a long random key: tells two keys apart, reveals neither.
    return hashlib.sha256(b"postroom resend identity\0" + key.encode("ascii")).hexdigest()[:12]


# --------------------------------------------------------------------------- #
# What an answer proves
# --------------------------------------------------------------------------- #


@dataclass(frozen=True, slots=True)
class Refusal:
    """An answer that is no success, read: its status, error name, text and wait."""

    status: int
    name: str
    text: str
    retry_after: float | None
    sender_domain: str

    @property
    def code(self) -> str:
        return self.name or str(self.status)


Rule = Callable[[Refusal], Outcome]


def _rejected(refusal: Refusal) -> Outcome:
    return Rejected(refusal.text, refusal.code)


def _credentials(refusal: Refusal) -> Outcome:
    return AccountBlocked("credentials", refusal.text)


def _permission(refusal: Refusal) -> Outcome:
    return AccountBlocked("permission", refusal.text)


def _endpoint(refusal: Refusal) -> Outcome:
    # Not about this message: waiting for a person loses nothing, refusing would lose a queue.
    return AccountBlocked("permission", f"check base_url: {refusal.text}")


def _sender_domain(refusal: Refusal) -> Outcome:
    return AccountBlocked("sender_domain", refusal.text, scope=refusal.sender_domain)


def _quota(refusal: Refusal) -> Outcome:
    return AccountBlocked("quota", refusal.text, retry_after=refusal.retry_after)


def _throttled(refusal: Refusal) -> Outcome:
    return Throttled(refusal.retry_after, refusal.text)


def _in_flight(refusal: Refusal) -> Outcome:
    return InFlight(refusal.retry_after)


def _key_mismatch(refusal: Refusal) -> Outcome:
    return KeyMismatch(refusal.text)


def _not_acted_upon(refusal: Refusal) -> Outcome:
    return Unavailable("redirect", str(refusal.status))


def _doubt(refusal: Refusal) -> Outcome:
    return InDoubt(f"status {refusal.status} {refusal.name}".rstrip())


NAMED: dict[tuple[int, str], Rule] = {
    (400, "invalid_idempotency_key"): _rejected,
    (400, "validation_error"): _rejected,
    (401, "missing_api_key"): _credentials,
    (401, "restricted_api_key"): _permission,
    (403, "invalid_api_key"): _credentials,
    (403, "validation_error"): _sender_domain,
    (404, "not_found"): _endpoint,
    (405, "method_not_allowed"): _endpoint,
    (409, "concurrent_idempotent_requests"): _in_flight,
    (409, "invalid_idempotent_request"): _key_mismatch,
    (422, "invalid_access"): _rejected,
    (422, "invalid_attachment"): _rejected,
    (422, "invalid_from_address"): _rejected,
    (422, "invalid_parameter"): _rejected,
    (422, "invalid_region"): _rejected,
    (422, "missing_required_field"): _rejected,
    (422, "validation_error"): _rejected,
    (429, "daily_quota_exceeded"): _quota,
    (429, "monthly_quota_exceeded"): _quota,
    (429, "rate_limit_exceeded"): _throttled,
    # "A security issue with the request": one bad message must not stop the others.
    (451, "security_error"): _rejected,
}
"""Every error below 500 that Resend documents."""

BY_STATUS: dict[int, Rule] = {
    # The method is kept, so the request is to be made elsewhere and was not acted upon
    # (RFC 9110, 15.4.8 and 15.4.9). The other redirects may follow an action; they are doubt.
    307: _not_acted_upon,
    308: _not_acted_upon,
    401: _credentials,
    403: _permission,
    404: _endpoint,
    405: _endpoint,
    413: _rejected,
    429: _throttled,
}
"""Where the name is unknown or missing. What is not here is doubt: 408, another 409, every 5xx."""

BY_STATUS_IN_JSON: dict[int, Rule] = {400: _rejected, 422: _rejected}
"""The same, if the body is a JSON object. A page in another format is not Resend's word about
this message but some proxy's about every request, and must not fail a whole queue."""


def read_answer(
    answer: Answer, *, sender_domain: str, secrets: list[str], now: datetime
) -> Outcome:
    """What ``answer`` proves. ``now`` is what a Retry-After date is counted from."""
    body = answer.json()
    fields = body if isinstance(body, dict) else {}
    if 200 <= answer.status < 300:
        identifier = fields.get("id")
        if isinstance(identifier, str) and identifier.strip():
            return Accepted(redact(identifier, secrets, limit=200))
        # Resend documents no success without an id: this may be somebody else's page.
        return InDoubt(f"status {answer.status} without an id")
    name = fields.get("name")
    wait = answer.headers.get("retry-after") or answer.headers.get("ratelimit-reset")
    refusal = Refusal(
        status=answer.status,
        name=redact(name, secrets, limit=100) if isinstance(name, str) else "",
        text=_text(fields, answer, secrets),
        retry_after=parse_retry_after(wait, now),
        sender_domain=sender_domain,
    )
    by_status = BY_STATUS | BY_STATUS_IN_JSON if fields else BY_STATUS
    known = NAMED.get((refusal.status, refusal.name)) or by_status.get(refusal.status, _doubt)
    return known(refusal)


def _text(fields: dict[str, object], answer: Answer, secrets: list[str]) -> str:
    text = fields.get("message")
    if isinstance(text, str) and text.strip():
        return redact(text, secrets)
    return answer.detail or f"status {answer.status}"
