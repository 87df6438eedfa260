"""The scratch database of a rehearsal is gone at the end, whoever presses what meanwhile."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from dispatcher.config import load
from dispatcher.rehearse import interruption, scratch


def test_nobody_interrupts_the_cleaning_up(
    empty_sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C twice while the scratch is being removed: it is removed all the same."""
    removed: list[Path] = []
    remove = shutil.rmtree

    def pressed_twice(folder: Path, **options: Any) -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        remove(folder, **options)
        removed.append(folder)

    config = load(environ={"POSTROOM_DATABASE__URL": empty_sqlite_url})
    with interruption.noted() as interrupted:
        with scratch.opened(config) as made:
            assert made.folder.is_dir()
            monkeypatch.setattr(shutil, "rmtree", pressed_twice)
        interrupted.obeyed()
    assert removed == [made.folder]
    assert not made.folder.exists()
