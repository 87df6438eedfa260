"""``POST /jobs/tick``: somebody wakes us.

Answers 202 with counts. Without ``?work=`` it has planned and run nothing. With it, runs were
started for so long, and those under way at its end were waited for; what was not done then is
done by the next tick. 202 in either case: what is planned is not done yet, and a run that
failed is in the counts and the tables, not in the status, or a scheduler would wake us again
for what no waking mends.

Who asks is looked at first, before anything of the body is read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import asdict
from datetime import timedelta
from typing import Any

from sqlalchemy.exc import SQLAlchemyError
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from dispatcher.web.application import answer, noted, problem
from dispatcher.web.bearer import Verdict, verdict
from dispatcher.web.ticks import NOTHING, Ticks, TooManyTicks, Woken
from outbox.errors import OutboxError
from outbox.instants import format_instant
from providers.settings import Secret, format_duration, parse_duration

BODY_BYTES = 64 * 1024
"""Of a body, which is not used: schedulers send one."""

BODY_SECONDS = 10.0
"""For all of it."""

LONGEST = timedelta(minutes=30)
"""No scheduler waits longer for an answer."""

LATER = "10"
"""Seconds after which it is worth trying again."""


def tick_routes(ticks: Ticks, token: Secret, log: Callable[[str], None]) -> list[Route]:
    """The routes of the tick. ``token`` is read for each request, so that it can be changed."""

    async def post(request: Request) -> Response:
        try:
            expected = token.reveal()
        except ValueError as error:
            log(f"web.public.tick_token: {error}")
            return problem(503, "the token of this server cannot be read")
        found = verdict(request.scope["headers"], expected)
        if found is not Verdict.GOOD:
            return _refused(request, found)
        if (bad := await _body(request)) is not None:
            return bad
        try:
            budget = _budget(request)
        except ValueError as error:
            return problem(400, str(error))
        return await _ticked(request, ticks, budget, log)

    return [Route("/jobs/tick", post, methods=["POST"])]


def _refused(request: Request, found: Verdict) -> Response:
    noted(request, found.value)
    error = ', error="invalid_token"' if found is Verdict.WRONG else ""
    said = "send the header Authorization: Bearer TOKEN"
    challenge = {"WWW-Authenticate": f'Bearer realm="postroom"{error}'}
    return problem(401, "this is not the token" if error else said, challenge)


async def _body(request: Request) -> Response | None:
    """Read the body and forget it; the answer if it cannot be had."""
    too_large = problem(413, f"the body is not used; at most {BODY_BYTES:,} bytes are read")
    length = request.headers.get("content-length", "")
    if length.isdigit() and int(length) > BODY_BYTES:
        return too_large
    read = 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                read += len(chunk)
                if read > BODY_BYTES:
                    return too_large
    except (TimeoutError, ClientDisconnect):
        return problem(408, "the body did not come in time")
    return None


def _budget(request: Request) -> timedelta:
    """What ``?work=`` says. Raises ValueError with a line for whoever asks."""
    given = request.query_params.multi_items()
    if unknown := sorted({name for name, _ in given} - {"work"}):
        raise ValueError(f"{unknown[0][:40]!r} is no parameter; there is work, like ?work=120s")
    if len(given) > 1:
        raise ValueError("work is given more than once")
    if not given:
        return NOTHING
    try:
        budget = parse_duration(given[0][1][:40])
    except ValueError as error:
        raise ValueError(f"work: {error}") from None
    if budget > LONGEST:
        raise ValueError(f"work: is {format_duration(budget)}; at most {format_duration(LONGEST)}")
    return budget


async def _ticked(
    request: Request, ticks: Ticks, budget: timedelta, log: Callable[[str], None]
) -> Response:
    try:
        woken = await ticks.once(budget)
    except TooManyTicks:
        return problem(429, "many ticks are going on already", {"Retry-After": LATER})
    except (SQLAlchemyError, OutboxError) as error:
        # What it says is for the log: it may name hosts and tables.
        log(f"tick: {str(error).partition(chr(10))[0]}")
        return problem(503, "the database cannot be used", {"Retry-After": LATER})
    counts = _counts(woken)
    if budget > NOTHING and not woken.worked:
        counts["note"] = "another tick of this process is running what is due; this one planned"
    noted(request, ", ".join(f"{n} {name}" for name, n in counts.items() if type(n) is int and n))
    return answer(202, counts)


def _counts(woken: Woken) -> dict[str, Any]:
    done = asdict(woken.done)
    at = format_instant(done.pop("at"))
    person = woken.done.needs_a_person
    return {"at": at, "worked": woken.worked, **done, "needs_a_person": person}
