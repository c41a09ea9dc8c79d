"""The stop matcher against a search of the whole text."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from radixrt.errors import InvalidRequest
from radixrt.text.stops import StopMatch, StopMatcher


def search_whole(text: bytes, stops: list[str]) -> StopMatch | None:
    """Leftmost-longest, by trying every stop string at every byte."""
    for start in range(len(text)):
        here = [stop for stop in stops if text.startswith(stop.encode(), start)]
        if here:
            return StopMatch(max(here, key=lambda stop: len(stop.encode())), start)
    return None


def run(chunks: list[bytes], matcher: StopMatcher) -> tuple[bytes, StopMatch | None]:
    """All that is released, and the match, when `chunks` are fed in turn."""
    shown = b""
    for chunk in chunks:
        step = matcher.feed(chunk)
        shown += step.released
        if step.match is not None:
            return shown, step.match
    step = matcher.finish()
    return shown + step.released, step.match


def cut(text: bytes, at: list[int]) -> list[bytes]:
    edges = sorted({0, len(text), *(i % (len(text) + 1) for i in at)})
    return [text[a:b] for a, b in itertools.pairwise(edges)]


small_text = st.text("abcž", max_size=40)
small_stops = st.lists(st.text("abcž", min_size=1, max_size=6), min_size=1, max_size=5)


@given(small_text, small_stops, st.lists(st.integers(0, 100), max_size=12))
def test_any_cutting_into_tokens_finds_what_a_search_of_the_whole_text_finds(text, stops, at):
    data = text.encode()
    expected = search_whole(data, stops)
    shown, match = run(cut(data, at), StopMatcher(stops))
    assert match == expected
    assert shown == (data if expected is None else data[: expected.start])


@given(small_text, small_stops, st.randoms(use_true_random=False))
def test_the_order_of_the_list_makes_no_difference(text, stops, random):
    shuffled = random.sample(stops, len(stops))
    assert run([text.encode()], StopMatcher(stops)) == run([text.encode()], StopMatcher(shuffled))


@given(small_text, small_stops)
def test_only_what_could_still_become_a_stop_is_held_back(text, stops):
    matcher = StopMatcher(stops)
    shown = 0
    data = text.encode()
    for i, byte in enumerate(data):
        step = matcher.feed(bytes([byte]))
        shown += len(step.released)
        if step.match is not None:
            return
        seen = data[: i + 1]
        open_ends = [len(seen)] + [
            start for start in range(len(seen)) if any(stop.encode().startswith(seen[start:]) for stop in stops)
        ]
        pending = search_whole(seen, stops)
        assert shown == min(open_ends if pending is None else [*open_ends, pending.start])


def test_no_part_of_a_stop_string_is_released_before_it_is_complete():
    matcher = StopMatcher(["two-three-f"])
    pieces = [matcher.feed(piece) for piece in (b"one-t", b"wo", b"-three-", b"four")]
    assert b"".join(piece.released for piece in pieces) == b"one-"
    assert pieces[-1].match == StopMatch("two-three-f", 4)


@pytest.mark.parametrize("stops", list(itertools.permutations([".", ";", "fig"])))
def test_the_earliest_match_wins_whatever_the_order_of_the_list(stops):
    assert run([b"plum;fig.end"], StopMatcher(stops)) == (b"plum", StopMatch(";", 4))


@pytest.mark.parametrize("stops", list(itertools.permutations(["v2 final", "2"])))
def test_a_shorter_stop_inside_a_longer_one_waits_until_the_longer_is_ruled_out(stops):
    assert run([b"v", b"2", b" ", b"beta"], StopMatcher(stops)) == (b"v", StopMatch("2", 1))
    assert run([b"v", b"2", b" final"], StopMatcher(stops)) == (b"", StopMatch("v2 final", 0))


def test_a_match_that_waits_for_a_longer_one_is_reported_at_the_end():
    matcher = StopMatcher(["ab", "abc"])
    assert matcher.feed(b"xab").match is None
    step = matcher.finish()
    assert (step.released, step.match) == (b"", StopMatch("ab", 1))


@pytest.mark.parametrize(
    ("chunks", "stop", "shown"),
    [
        ([b" button"], "butt", b" "),
        ([b"internationalisation"], "z", b"internationalisation"),
        ([b"internationalisation"], "l", b"internationa"),
        ([b"ab" * 20, b"ab" * 20, b"!"], "ab" * 30, b""),
        (["5 ž".encode()[:3], "5 ž".encode()[3:]], "ž", b"5 "),
    ],
)
def test_stops_need_no_token_boundary(chunks, stop, shown):
    assert run(chunks, StopMatcher([stop]))[0] == shown


def test_without_stop_strings_all_is_released_at_once():
    matcher = StopMatcher([])
    assert matcher.feed(b"abc").released == b"abc"
    assert matcher.finish().released == b""


@pytest.mark.parametrize("stop", ["", "a\udc01b"])
def test_a_stop_string_that_can_never_match_is_refused(stop):
    with pytest.raises(InvalidRequest) as caught:
        StopMatcher(["fine", stop])
    assert caught.value.field == "stop[1]"
