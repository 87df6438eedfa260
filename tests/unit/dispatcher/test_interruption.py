"""Ctrl-C and SIGTERM in a rehearsal: noted, and obeyed where nothing can be torn."""

from __future__ import annotations

import asyncio
import signal

import pytest

from dispatcher.rehearse import interruption


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_obeyed_only_where_it_is_asked_for(number: signal.Signals) -> None:
    """Code that is not ours goes on to its end; then the rehearsal hears of it."""
    with interruption.noted() as interrupted:
        interrupted.obeyed()
        signal.raise_signal(number)
        assert interrupted.asked
        with pytest.raises(KeyboardInterrupt):
            interrupted.obeyed()


def test_a_signal_cancels_what_is_played() -> None:
    """What is played sees a cancellation and may tidy up; nothing is raised anywhere else."""
    seen = []

    async def played() -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
            seen.append("the next line")
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            seen.append("cancelled")
            await asyncio.sleep(0)
            seen.append("tidied up")
            raise

    with interruption.noted() as interrupted, pytest.raises(KeyboardInterrupt):
        interrupted.run(played())
    assert seen == ["the next line", "cancelled", "tidied up"]


def test_a_signal_before_the_play_ends_it_at_its_first_step() -> None:
    """A signal that came while nothing was played is not forgotten."""
    seen = []

    async def played() -> None:
        await asyncio.sleep(0)
        seen.append("too far")

    with interruption.noted() as interrupted:
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            interrupted.run(played())
    assert seen == []


def test_a_second_signal_interrupts_anywhere() -> None:
    """Who asks twice waits for something that does not answer."""
    with interruption.noted():
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_nothing_disturbs_the_cleaning_up() -> None:
    """Neither signal does anything while the scratch is being dropped."""
    with interruption.noted() as interrupted:
        with interruption.ignored():
            for number in interruption.SIGNALS:
                signal.raise_signal(number)
        interrupted.obeyed()


def test_the_handlers_of_the_host_come_back() -> None:
    """After the block both signals mean what they meant before."""
    before = [signal.getsignal(number) for number in interruption.SIGNALS]
    with interruption.noted():
        pass
    assert [signal.getsignal(number) for number in interruption.SIGNALS] == before
