"""Stop patterns against `re` on the whole text."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from radixrt.errors import InvalidPattern
from radixrt.text.regex.automaton import MOST_POSITIONS
from radixrt.text.regex.dialects import PYTHON
from radixrt.text.regex.members import membership
from radixrt.text.regex.nodes import Chars
from radixrt.text.regex.parse import parse
from radixrt.text.stop_patterns import stop_automaton
from radixrt.text.stops import StopMatch, StopMatcher
from tests.text.test_stops import cut, run


def search_whole(text: str, pattern: str) -> StopMatch | None:
    """The leftmost match, and of those that start there the shortest."""
    found = re.search(pattern, text)
    if found is None:
        return None
    start = found.start()
    ends = range(start + 1, len(text) + 1)
    end = next(end for end in ends if re.fullmatch(pattern, text[start:end]))
    return StopMatch(text[start:end], len(text[:start].encode()))


atoms = st.sampled_from(["a", "b", "ž", "[ab]", "[^a]", ".", r"\w", "c"])
patterns = st.recursive(
    atoms,
    lambda inner: (
        st.tuples(inner, inner).map("".join)
        | st.tuples(inner, inner).map(lambda pair: f"(?:{pair[0]}|{pair[1]})")
        | st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "{2,}", "*?"])).map(
            lambda pair: f"(?:{pair[0]}){pair[1]}"
        )
    ),
    max_leaves=6,
)
writable = patterns.filter(lambda pattern: not re.fullmatch(pattern, ""))
texts = st.text("abcž-\n", max_size=24)
cuts = st.lists(st.integers(0, 60), max_size=10)


@given(texts, writable, cuts)
def test_any_cutting_into_tokens_finds_what_re_finds(text: str, pattern: str, at: list[int]) -> None:
    expected = search_whole(text, pattern)
    data = text.encode()
    shown, match = run(cut(data, at), StopMatcher(patterns=[pattern]))
    assert match == expected
    assert shown == (data if expected is None else data[: expected.start])


@given(texts, writable, texts)
def test_what_is_shown_before_the_end_is_taken_back_by_no_continuation(text: str, pattern: str, more: str) -> None:
    matcher = StopMatcher(patterns=[pattern])
    step = matcher.feed(text.encode())
    if step.match is None:
        whole = search_whole(text + more, pattern)
        assert whole is None or len(step.released) <= whole.start


@given(texts, st.lists(st.text("abcž", min_size=1, max_size=3), max_size=3), writable, cuts)
def test_strings_and_patterns_together_cut_at_the_first_of_either(
    text: str, stops: list[str], pattern: str, at: list[int]
) -> None:
    places = [place for stop in stops if (place := text.find(stop)) >= 0]
    by_pattern = search_whole(text, pattern)
    data = text.encode()
    starts = [len(text[:place].encode()) for place in places] + ([by_pattern.start] if by_pattern else [])
    shown, match = run(cut(data, at), StopMatcher(stops, [pattern]))
    assert shown == data[: min(starts, default=len(data))]
    assert (match is None) == (not starts)
    if match is not None:
        here = [stop for stop in stops if data.startswith(stop.encode(), match.start)]
        assert match.stop == (
            max(here, key=lambda stop: len(stop.encode())) if here else by_pattern and by_pattern.stop
        )


def test_only_what_may_become_a_match_is_held_back() -> None:
    matcher = StopMatcher(patterns=["[0-9]{3}", "<b>"])
    released = [matcher.feed(piece).released for piece in (b"no. 12", b" or 4", b"5 <", b"i> 34")]
    assert released == [b"no. ", b"12 or ", b"45 ", b"<i> "]
    assert matcher.held == 2
    assert matcher.feed(b"0!") == (b"", StopMatch("340", 17))


def test_an_endless_pattern_holds_back_until_it_can_match_no_more() -> None:
    matcher = StopMatcher(patterns=[r"\(see .*\)"])
    assert matcher.feed(b"so (see here, ").released == b"so "
    assert matcher.feed(b"and there").released == b""
    assert matcher.feed(b"\nnext").released == b"(see here, and there\nnext"


def test_a_match_is_reported_as_soon_as_it_is_one() -> None:
    step = StopMatcher(patterns=["[0-9]+"]).feed(b"room 101")
    assert step == (b"room ", StopMatch("1", 5))


def test_a_match_that_began_earlier_is_waited_for() -> None:
    matcher = StopMatcher(patterns=["ab+c|b"])
    assert matcher.feed(b"xabb") == (b"x", None)
    assert matcher.feed(b"c") == (b"", StopMatch("abbc", 1))
    matcher = StopMatcher(patterns=["ab+c|b"])
    assert matcher.feed(b"xabb") == (b"x", None)
    assert matcher.feed(b"-") == (b"a", StopMatch("b", 2))


def test_a_stream_that_ends_settles_what_was_waited_for() -> None:
    matcher = StopMatcher(patterns=["ab+c|b"])
    matcher.feed(b"xabb")
    assert matcher.finish() == (b"a", StopMatch("b", 2))


def test_bytes_that_are_no_text_match_what_they_show_as() -> None:
    broken = "né".encode()[:-1]
    assert run([broken, b"ab"], StopMatcher(patterns=["ab"])) == (broken, StopMatch("ab", 2))
    assert run([broken, b"ab"], StopMatcher(patterns=["n.a"])) == (b"", StopMatch("n\ufffda", 0))
    assert run([b"\xff\xf0\x9f", b"\x99"], StopMatcher(patterns=["[a-z]"])) == (b"\xff\xf0\x9f\x99", None)


@pytest.mark.parametrize("pattern", ["(a+)+b", "(a|a)*b", "(a?){200}a{200}b", "(.*.*.*)=(.*.*)b"])
def test_no_pattern_makes_a_text_dear(pattern: str) -> None:
    """A matcher that backtracks would not come back from this."""
    text = b"a" * 2000
    assert run([text], StopMatcher(patterns=[pattern])) == (text, None)


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("([a-z", "without its ]"),
        ("a*", "the empty text matches"),
        ("[]", "without its ]"),
        ("^a", "an anchor"),
        ("a$", "an anchor"),
        (r"\bend\b", "word boundary"),
        ("(?<=a)b", "lookbehind"),
        (r"(a)\1", "backreference"),
        (r"\p{Han}", "general categories"),
        (f"a{{{MOST_POSITIONS + 1}}}", f"more than {MOST_POSITIONS}"),
        ("(a{1000}){1000}", f"more than {MOST_POSITIONS}"),
        ("((a{0}){1000000}){1000000}", "the empty text matches"),
    ],
)
def test_what_cannot_be_watched_for_is_refused_with_the_reason(pattern: str, reason: str) -> None:
    with pytest.raises(InvalidPattern, match=re.escape(reason)) as caught:
        stop_automaton(("fine", pattern))
    assert caught.value.field == "stop_regex[1]"
    assert isinstance(caught.value, re.error)


def test_patterns_that_are_too_large_together_are_refused() -> None:
    half = f"a{{{MOST_POSITIONS // 2}}}b"
    with pytest.raises(InvalidPattern, match="all patterns together") as caught:
        stop_automaton((half, half.replace("a", "c")))
    assert caught.value.field == "stop_regex"


@pytest.mark.parametrize(
    "written", [r"\d", r"\w", r"\s", r"\D", r"\W", r"\S", r"[^\d\s]", r"[a-cž-]", "[^ab]", "(?i)[k-m]"]
)
def test_a_class_has_the_characters_that_re_finds(written: str) -> None:
    node = parse(written, PYTHON)
    assert isinstance(node, Chars)
    has = membership(node)
    everything = [chr(code) for code in range(0x3000)]
    ours = {character for character in everything if has(character)}
    theirs = {character for character in everything if re.fullmatch(written, character, re.DOTALL)}
    assert ours == theirs
