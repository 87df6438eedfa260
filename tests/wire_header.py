"""A strict reader of header fields, written from RFC 5322, RFC 2047 and RFC 2231.

It shares no code with what it checks, and asks nothing of Python's ``email``
package. It reads only what a careful sender writes: obsolete syntax, comments
and groups are errors here, although a receiver would have to take them.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from urllib.parse import unquote_to_bytes

_ATEXT = r"A-Za-z0-9!#$%&'*+/=?^_`{|}~\-"
_TOKEN = re.compile(
    rf"""(?P<space>[ \t]+)
    |(?P<quoted>"(?:[ \t!#-\[\]-~\u0080-\U0010ffff]|\\[ -~])*")
    |(?P<literal>\[[!-Z^-~]*\])
    |(?P<atom>[{_ATEXT}\u0080-\U0010ffff]+)
    |(?P<special>[<>@,.])""",
    re.VERBOSE,
)
_WORD = re.compile(r"=\?([A-Za-z0-9!#$%&'+\-^_`{|}~]+)\?([bBqQ])\?([!->@-~]+)\?=")
_Q_TEXT = re.compile(r"(?:[!-<>@-^`-~_]|=[0-9A-F]{2})+")
_PARAMETER = re.compile(
    r""";[ \t]*(?P<name>[A-Za-z0-9!#$%&+\-^_`{|}~.]+(?:\*[0-9]+)?\*?)=
    (?:(?P<token>[A-Za-z0-9!#$%&'*+\-.^_`{|}~]+)|"(?P<quoted>(?:[ \t!#-\[\]-~]|\\[ -~])*)")""",
    re.VERBOSE,
)
_EXTENDED = re.compile(r"(?:[A-Za-z0-9!#$&+\-.^_`|~]|%[0-9A-F]{2})*")


class Malformed(ValueError):
    """The value breaks its grammar."""


def split(octets: bytes) -> tuple[bytes, bytes]:
    """Header block (with its last line end) and body of an entity."""
    if octets.startswith(b"\r\n"):
        return b"", octets[2:]
    head, found, body = octets.partition(b"\r\n\r\n")
    return (head + b"\r\n", body) if found else (head, b"")


def fields(raw: bytes) -> list[tuple[str, str]]:
    """Each field's name and unfolded value, in order; only line ends are taken out."""
    found: list[tuple[str, str]] = []
    for line in split(raw)[0].split(b"\r\n")[:-1]:
        text = line.decode("utf-8", "surrogateescape")
        if text[:1] in (" ", "\t") and found:
            name, value = found[-1]
            found[-1] = (name, value + text)
        else:
            name, colon, value = text.partition(":")
            found.append((name if colon else "", value if colon else text))
    return [(name, value.strip(" \t")) for name, value in found]


def get(raw: bytes, name: str) -> str | None:
    """The unfolded value of the first field of that name."""
    return next((value for key, value in fields(raw) if key.lower() == name.lower()), None)


def decode_word(word: str) -> str:
    """One encoded-word, decoded alone; Malformed if it cannot be."""
    match = _WORD.fullmatch(word)
    if match is None:
        raise Malformed(f"not an encoded-word: {word!r}")
    charset, kind, text = match.groups()
    try:
        if kind in "bB":
            return base64.b64decode(text, validate=True).decode(charset)
        if not _Q_TEXT.fullmatch(text):
            raise Malformed(f"not Q text: {word!r}")
        return unquote_to_bytes(
            text.replace("%", "%25").replace("=", "%").replace("_", " ")
        ).decode(charset)
    except (binascii.Error, UnicodeDecodeError, LookupError) as error:
        raise Malformed(f"{word!r} does not decode alone: {error}") from error


def decode_words(value: str) -> str:
    """Unstructured text decoded: encoded-words stand between spaces (RFC 2047, 5 (1))."""
    pieces = re.split(r"([ \t]+)", value)
    words = pieces[::2]
    encoded = [_WORD.fullmatch(word) is not None for word in words]
    result = ""
    for position, word in enumerate(words):
        if position and not (encoded[position - 1] and encoded[position]):
            result += pieces[2 * position - 1]
        result += decode_word(word) if encoded[position] else word
    return result


def _tokens(value: str) -> list[tuple[str, str]]:
    found = []
    position = 0
    while position < len(value):
        match = _TOKEN.match(value, position)
        if match is None or match.lastgroup is None:
            raise Malformed(f"unexpected {value[position]!r} at {position} in {value!r}")
        found.append((match.lastgroup, match[0]))
        position = match.end()
    return found


def mailboxes(value: str) -> list[tuple[str, str]]:
    """A list of mailboxes as (decoded name, address); raises Malformed (RFC 5322, 3.4)."""
    lists: list[list[tuple[str, str]]] = [[]]
    for kind, text in _tokens(value):
        if (kind, text) == ("special", ","):
            lists.append([])
        else:
            lists[-1].append((kind, text))
    return [_mailbox(_trimmed(tokens)) for tokens in lists]


def _trimmed(tokens: list[tuple[str, str]]) -> list[tuple[str, str]]:
    first = 1 if tokens and tokens[0][0] == "space" else 0
    last = len(tokens) - 1 if len(tokens) > first and tokens[-1][0] == "space" else len(tokens)
    return tokens[first:last]


def _mailbox(tokens: list[tuple[str, str]]) -> tuple[str, str]:
    if ("special", "<") not in tokens:
        return "", _addr_spec(tokens)
    opening = tokens.index(("special", "<"))
    if tokens[-1] != ("special", ">"):
        raise Malformed(f"no > at the end of {tokens}")
    return _phrase(_trimmed(tokens[:opening])), _addr_spec(tokens[opening + 1 : -1])


def _addr_spec(tokens: list[tuple[str, str]]) -> str:
    shape = "".join({"atom": "a", "quoted": "q", "literal": "l"}.get(k, t) for k, t in tokens)
    if not re.fullmatch(r"(?:a(?:\.a)*|q)@(?:a(?:\.a)*|l)", shape):
        raise Malformed(f"not an address: {''.join(text for _, text in tokens)!r}")
    address = "".join(text for _, text in tokens)
    if "=?" in address:
        raise Malformed(f"encoded-word inside an address: {address!r}")
    if not address.rpartition("@")[2].isascii():
        raise Malformed(f"domain is not ASCII: {address!r}")
    return address


def _phrase(tokens: list[tuple[str, str]]) -> str:
    result = ""
    space = ""
    before = ""
    for kind, text in tokens:
        if kind == "space":
            space = text
            continue
        if kind not in {"atom", "quoted"} or (before and not space):
            raise Malformed(f"not a phrase: {tokens}")
        if not text.isascii():
            raise Malformed(f"raw text in a name: {text!r}")
        now = "encoded" if kind == "atom" and _WORD.fullmatch(text) else kind
        if now != "encoded" and "=?" in text:
            raise Malformed(f"looks like an encoded-word: {text!r}")
        if not (before == now == "encoded"):
            result += space
        result += _READERS[now](text)
        before, space = now, ""
    return result


def _unquote(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1])


_READERS: dict[str, Callable[[str], str]] = {
    "encoded": decode_word,
    "quoted": _unquote,
    "atom": str,
}


def parameters(value: str) -> tuple[str, dict[str, str]]:
    """A MIME value and its parameters, continuations joined and decoded (RFC 2231)."""
    main, _, _ = value.partition(";")
    rest = value[len(main) :]
    plain: dict[str, str] = {}
    while rest:
        match = _PARAMETER.match(rest)
        if match is None:
            raise Malformed(f"not a parameter: {rest!r}")
        name = match["name"].lower()
        if name in plain:
            raise Malformed(f"{name} appears twice")
        text = match["token"] if match["quoted"] is None else _unquote(f'"{match["quoted"]}"')
        if "=?" in text:
            raise Malformed(f"encoded-word in a parameter: {text!r}")
        plain[name] = text
        rest = rest[match.end() :]
    return main.strip(" \t"), _joined(plain)


def _joined(plain: dict[str, str]) -> dict[str, str]:
    result: dict[str, str] = {}
    sections: dict[str, list[str]] = {}
    for name, text in plain.items():
        key, _, rest = name.partition("*")
        number, star = rest.rstrip("*"), name.endswith("*")
        if number:
            if int(number) != len(sections.setdefault(key, [])) or not star:
                raise Malformed(f"{name} is out of order or not extended")
            sections[key].append(text)
        elif star:
            sections[key] = [text]
        else:
            result[name] = text
    for key, texts in sections.items():
        charset, language, first = [*texts[0].split("'", 2), "", ""][:3]
        coded = [first, *texts[1:]]
        if not charset or language or not all(_EXTENDED.fullmatch(text) for text in coded):
            raise Malformed(f"{key}*: not an extended value: {texts}")
        # Each section has to hold whole characters, so it is decoded alone.
        result[key] = "".join(unquote_to_bytes(text).decode(charset) for text in coded)
    return result
