"""The file name under which an attachment travels: shared by every adapter."""

from __future__ import annotations

import re

from providers.encoding import refuse_controls

_SUFFIXES = {
    "application/gzip": ".gz",
    "application/json": ".json",
    "application/msword": ".doc",
    "application/pdf": ".pdf",
    "application/vnd.ms-excel": ".xls",
    "application/vnd.openxmlformats-officedocument.presentationml.presentation": ".pptx",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": ".xlsx",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": ".docx",
    "application/xml": ".xml",
    "application/zip": ".zip",
    "image/gif": ".gif",
    "image/jpeg": ".jpg",
    "image/png": ".png",
    "image/svg+xml": ".svg",
    "image/webp": ".webp",
    "message/rfc822": ".eml",
    "text/calendar": ".ics",
    "text/csv": ".csv",
    "text/html": ".html",
    "text/markdown": ".md",
    "text/plain": ".txt",
    "text/xml": ".xml",
}
"""A table of our own: Python's ``mimetypes`` reads files of the machine it runs on."""

_WINDOWS_PATH = re.compile(r"[A-Za-z]:\\|\\\\|\.{1,2}\\")


def attachment_name(name: str, index: int, content_type: str) -> str:
    r"""The base name of ``name``, or ``attachment-N.ext`` when it has none.

    ``index`` counts the message's attachments from 0; N counts from 1. A
    backslash separates folders only in what is a Windows path (``C:\…``,
    ``\\host\…``, ``..\…``); elsewhere it belongs to the name. Raises
    InvalidField for a name that no header may carry.
    """
    refuse_controls(f"attachments[{index}].filename", name)
    base = name.rpartition("/")[2]
    if _WINDOWS_PATH.match(base):
        base = base.rpartition("\\")[2]
    base = base.strip(" \t")
    if base.strip("."):
        return base
    return f"attachment-{index + 1}{_SUFFIXES.get(content_type.lower(), '.bin')}"
