"""Keys: different intentions never share one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from outbox.errors import InvalidKey
from outbox.keys import check_key, key

PIECES = st.lists(
    st.text(
        st.one_of(st.sampled_from(list(":~%2A3 \n\t\x85\u2028a")), st.characters(codec="utf-8")),
        min_size=1,
        max_size=6,
    ),
    min_size=1,
    max_size=4,
).map(tuple)


@given(PIECES, PIECES)
def test_different_parts_give_different_keys(
    first: tuple[str, ...], second: tuple[str, ...]
) -> None:
    """Two tuples of parts give the same key only if they are equal (B37)."""
    assert (key(*first) == key(*second)) == (first == second)


@given(PIECES, st.sampled_from([":", "%3A", "~"]))
def test_a_separator_inside_a_part_is_no_separator(parts: tuple[str, ...], by: str) -> None:
    """Parts joined by hand into one part have another key than the parts."""
    joined = by.join(parts)
    assert (key(joined) == key(*parts)) == ((joined,) == parts)


@given(PIECES)
def test_a_made_key_is_a_valid_key(parts: tuple[str, ...]) -> None:
    """What key() makes passes the check for keys given as whole text."""
    made = key(*parts)
    assert check_key(made) == made


@given(st.text())
def test_a_key_is_taken_unchanged_or_refused(text: str) -> None:
    """Any text either is a key as it stands or raises InvalidKey, nothing else."""
    try:
        taken = check_key(text)
    except InvalidKey:
        return
    assert taken == text
