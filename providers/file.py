"""Mail into a folder: one ``.eml`` per message, so that nothing is sent by accident.

The name comes from the idempotency key, so the same attempt made again writes
the same file and not a second one; that is this adapter's replay. A file
appears whole or not at all: it is written under another name, flushed to the
disk and then renamed. A crash can leave a hidden ``.tmp``, never half a mail.

Beside each ``.eml`` stands a ``.json`` with the envelope. Blind recipients must
not be in the message, not even in a private header: a file is opened, attached
and passed on as a whole. The envelope is written first, so that no ``.eml`` is
without one.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import re
import tempfile
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

from providers.contract import (
    Accepted,
    Capabilities,
    Message,
    Permit,
    Rejected,
    Result,
    Unavailable,
)
from providers.encoding import WireError
from providers.mime import render
from providers.redact import redact
from providers.settings import AccountSettings

CAPABILITIES = Capabilities(
    delivers=False,
    means=("replay",),
    replay="same_response",
    # The folder remembers a name for as long as nobody tidies it up.
    key_retention=timedelta(days=30).total_seconds(),
)

_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]")
_REASONS = {
    errno.ENOSPC: "disk_full",
    errno.EDQUOT: "disk_full",
    errno.EFBIG: "disk_full",
    errno.EROFS: "read_only",
}


class Settings(AccountSettings):
    """``directory``: where the mail goes; relative to the working directory."""

    directory: Path = Path("var/mail")


def open_account(name: str, settings: Settings) -> FileProvider:
    """The account ``name``; the folder is made when the first message is written."""
    return FileProvider(name, settings)


class FileProvider:
    """One folder; see :class:`providers.contract.Provider`."""

    capabilities = CAPABILITIES

    def __init__(self, name: str, settings: Settings) -> None:
        self.name = name
        self.longest_send = 60.0  # a disk that takes longer has failed
        # Fixed now: a later change of the working directory must not split the mail.
        self._directory = settings.directory.absolute()

    @property
    def identity(self) -> str:
        """Adapter and folder."""
        return f"file:{self._directory}"

    async def send(self, message: Message, permit: Permit) -> Result:
        """Write one message. A full disk or a folder without access is ``Unavailable``."""
        try:
            content = message.kept or render(message, eight_bit=True, smtputf8=True)
        except WireError as error:
            return Result(Rejected(redact(str(error)), "invalid_message"))
        await permit.transmitting(message.recipients, content)
        permit.check()
        target = self._directory / f"{_file_name(message)}.eml"
        pieces = {target.with_suffix(".json"): _envelope(message), target: content}
        try:
            drafts = await asyncio.to_thread(_write_drafts, pieces)
            try:
                permit.check()
                await asyncio.to_thread(_publish, drafts)
            finally:
                _discard(drafts)
        except OSError as error:
            reason = _REASONS.get(error.errno or 0, "unwritable")
            return Result(Unavailable(reason), detail=redact(str(error)))
        return Result(Accepted(target.name), detail=str(target))

    async def aclose(self) -> None:
        """Nothing is kept open."""


def _file_name(message: Message) -> str:
    key = message.idempotency_key
    name = key if key.startswith(message.correlation) else f"{message.correlation}-{key}"
    return _UNSAFE.sub("_", name).lstrip(".")[:200] or "_"


def _envelope(message: Message) -> bytes:
    envelope = {
        "from": message.sender.address,
        "recipients": list(message.recipients),
        "message_id": message.message_id,
        "idempotency_key": message.idempotency_key,
        "tags": list(message.tags),
        "metadata": dict(message.metadata),
    }
    return json.dumps(envelope, ensure_ascii=False, indent=2, sort_keys=True).encode() + b"\n"


def _write_drafts(pieces: Mapping[Path, bytes]) -> dict[Path, Path]:
    """Each content under a hidden name in its folder; hidden name by final name."""
    drafts: dict[Path, Path] = {}
    try:
        for final, content in pieces.items():
            final.parent.mkdir(parents=True, exist_ok=True)
            descriptor, name = tempfile.mkstemp(
                prefix=f".{final.stem}.", suffix=".tmp", dir=final.parent
            )
            drafts[final] = Path(name)
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
    except BaseException:
        _discard(drafts)
        raise
    return drafts


def _publish(drafts: Mapping[Path, Path]) -> None:
    for final, hidden in drafts.items():
        hidden.replace(final)
        # The file is there whatever happens now; a folder that may not be read cannot be synced.
        with contextlib.suppress(OSError):
            _sync_folder(final.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _discard(drafts: Mapping[Path, Path]) -> None:
    for hidden in drafts.values():
        with contextlib.suppress(OSError):
            hidden.unlink()
