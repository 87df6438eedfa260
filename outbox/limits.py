"""How large a message may be. Refused at enqueue, with the field named.

The numbers are ours unless a source is given. A provider may allow less; that
is known only where the account is known.
"""

from __future__ import annotations

from typing import Final

KEY_CHARACTERS: Final = 255
"""A delivery key; the database checks the same length."""

LOCAL_PART_OCTETS: Final = 64
"""RFC 5321 section 4.5.3.1.1."""

ADDRESS_OCTETS: Final = 254
"""RFC 5321 section 4.5.3.1.3: a path of 256 octets, less its angle brackets."""

LABEL_OCTETS: Final = 63
"""RFC 1035 section 2.3.4."""

DOMAIN_OCTETS: Final = 253
"""RFC 1035 section 2.3.4, written as text without the root's dot."""

NAME_CHARACTERS: Final = 256
MAILBOX_CHARACTERS: Final = 1_000
"""A whole ``Name <address>`` text, before it is taken apart."""

RECIPIENTS: Final = 1_000
"""To, cc and bcc together."""

REPLY_TO: Final = 20

SUBJECT_CHARACTERS: Final = 998
"""RFC 5322 section 2.1.1 gives one line 998 characters."""

BODY_OCTETS: Final = 10 * 1024 * 1024
"""``text`` and ``html``, each, in UTF-8."""

HEADERS: Final = 100
HEADER_NAME_CHARACTERS: Final = 76
"""So that the name and its colon stay within the 78 of RFC 5322 section 2.1.1."""

HEADER_VALUE_CHARACTERS: Final = 8_192

ATTACHMENTS: Final = 100
ATTACHMENTS_OCTETS: Final = 40 * 1024 * 1024
"""The contents of all attachments together, before any encoding."""

FILENAME_CHARACTERS: Final = 255
CONTENT_TYPE_CHARACTERS: Final = 255
CONTENT_ID_CHARACTERS: Final = 255

TAGS: Final = 50
TAG_CHARACTERS: Final = 128

METADATA_ENTRIES: Final = 100
METADATA_KEY_CHARACTERS: Final = 128
METADATA_VALUE_CHARACTERS: Final = 4_096

UNSUBSCRIBE_URLS: Final = 10
UNSUBSCRIBE_URL_CHARACTERS: Final = 2_048

PROVIDER_OPTIONS_CHARACTERS: Final = 65_536
"""All provider options together, as JSON."""

PROVIDER_OPTIONS_DEPTH: Final = 16

DOCUMENT_CHARACTERS: Final = 128 * 1024 * 1024
"""A whole message as JSON, attachments in base64 included."""
