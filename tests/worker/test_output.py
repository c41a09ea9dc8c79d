"""Stop strings, ends of turn and limits, decided on the tokens' bytes."""

from __future__ import annotations

from itertools import permutations

import pytest

from radixrt.protocol.ids import IdArray, as_ids, unpack_ids
from radixrt.protocol.sampling import SamplingParams
from radixrt.worker.output import End, Output

END = 0


class Words:
    """A vocabulary of whole words, the single letters a-z as ids 100 + their place in the alphabet."""

    vocabulary_size = 200
    words = {1: b"plum", 2: b";", 3: b"fig", 4: b".end", 5: b" button", 6: b");", 7: b"val", 8: b"boats sail "}
    words |= {
        9: b"until",
        10: b" dark",
        11: b" falls",
        12: "é".encode()[:1],
        13: "é".encode()[1:],
        14: b"v2 ",
        15: b"2",
    }

    def token_bytes(self, token: int) -> bytes:
        if token == END:
            return b""
        return self.words.get(token) or bytes([token - 100 + ord("a")])

    def encode_bytes(self, data: bytes) -> IdArray:
        return as_ids([100 + byte - ord("a") for byte in data])


def run(tokens: list[int], *, room: int = 100, **params: object) -> tuple[bytes, End | None]:
    output = Output(SamplingParams(**params), frozenset([END]), room, Words())  # type: ignore[arg-type]
    shown = b""
    for token in tokens:
        text, end = output.accept(token)
        shown += text
        if end is not None:
            return shown, end
    return shown, None


@pytest.mark.parametrize("stop", list(permutations([".", ";", "fig"])))
def test_the_earliest_match_cuts_whatever_the_order_of_the_list(stop: tuple[str, ...]) -> None:
    """D12"""
    text, end = run([1, 2, 3, 4], stop=stop)
    assert text == b"plum"
    assert end is not None
    assert (end.reason, end.matched, end.kept, end.tail) == ("stop", ";", 1, b"")


def test_a_stop_inside_a_token_cuts_the_token_and_retokenises_what_is_left() -> None:
    """D13, D15: one token spans text and stop string."""
    text, end = run([7, 5], stop=("tton",))
    assert text == b"val bu"
    assert end is not None
    assert end.kept == 1
    assert unpack_ids(end.tail).tolist() == [ord(c) - ord("a") + 100 for c in " bu"]


def test_a_stop_that_begins_several_tokens_back_leaves_none_of_it() -> None:
    """D14: the context keeps what is visible, and no token of the stop string."""
    text, end = run([8, 9, 10, 11], stop=("until dark",))
    assert text == b"boats sail "
    assert end is not None
    assert (end.kept, end.tail) == (1, b"")


def test_what_could_become_a_stop_is_held_back_and_shown_at_the_end() -> None:
    """D10"""
    output = Output(SamplingParams(stop=("until dark falls, and",)), frozenset([END]), 100, Words())
    assert output.accept(8) == (b"boats sail ", None)
    assert output.accept(9) == (b"", None)
    assert output.accept(10)[0] == b""
    text, end = output.accept(END)
    assert text == b"until dark"
    assert end is not None
    assert (end.reason, end.matched, end.kept) == ("stop", END, 3)


def test_a_longer_stop_that_does_not_come_leaves_the_shorter_one() -> None:
    """D12: `v2 beta` with the stops `v2 final` and `2`."""
    text, end = run([14, 101, 104], stop=("v2 final", "2"))
    assert text == b"v"
    assert end is not None
    assert end.matched == "2"


def test_a_stop_that_waited_for_a_longer_one_cuts_when_the_turn_ends() -> None:
    text, end = run([14, END], stop=("v", "v2 final"))
    assert text == b""
    assert end is not None
    assert (end.matched, end.kept, end.tail) == ("v", 0, b"")


def test_an_end_of_turn_is_counted_but_not_shown_and_not_kept() -> None:
    text, end = run([1, END, 1])
    assert text == b"plum"
    assert end == End("stop", END, kept=1, tail=b"")


def test_the_length_limit_is_the_smaller_of_max_tokens_and_the_room_there_is() -> None:
    assert run([1, 1, 1], max_tokens=2) == (b"plumplum", End("length", None, 2, b""))
    assert run([1, 1, 1], max_tokens=9, room=1) == (b"plum", End("length", None, 1, b""))


def test_min_tokens_does_not_outlast_the_room_there_is() -> None:
    assert run([1, 1, 1], min_tokens=9, room=2) == (b"plumplum", End("length", None, 2, b""))


def test_at_the_length_limit_what_was_held_back_is_shown() -> None:
    text, end = run([7, 9], max_tokens=2, stop=("until dark",))
    assert text == b"valuntil"
    assert end is not None
    assert end.reason == "length"


def test_no_stop_string_counts_before_min_tokens() -> None:
    text, end = run([2, 1, 2], stop=(";",), min_tokens=2)
    assert text == b";plum"
    assert end is not None
    assert end.kept == 2


def test_a_stop_string_may_be_completed_by_the_last_of_min_tokens() -> None:
    text, end = run([1, 2], stop=(";",), min_tokens=2)
    assert text == b"plum"
    assert end is not None
    assert end.kept == 1


def test_a_stop_pattern_cuts_inside_a_token_and_tells_the_text_that_matched() -> None:
    text, end = run([1, 5, 6], stop_regex=("u[a-z]{2}o",))
    assert text == b"plum b"
    assert end is not None
    assert (end.reason, end.matched, end.kept) == ("stop", "utto", 1)
    assert unpack_ids(end.tail).tolist() == [ord(c) - ord("a") + 100 for c in " b"]


def test_what_could_become_a_match_of_a_pattern_is_held_back_and_shown_at_the_end() -> None:
    output = Output(SamplingParams(stop_regex=("until [a-z]+;",)), frozenset([END]), 100, Words())
    assert output.accept(8) == (b"boats sail ", None)
    assert output.accept(9) == (b"", None)
    assert output.holds_back
    assert output.accept(10)[0] == b""
    text, end = output.accept(END)
    assert text == b"until dark"
    assert end is not None
    assert (end.reason, end.matched, end.kept) == ("stop", END, 3)


def test_no_stop_pattern_counts_before_min_tokens() -> None:
    text, end = run([2, 1, 2], stop_regex=("[;.]",), min_tokens=2)
    assert text == b";plum"
    assert end is not None
    assert (end.kept, end.matched) == (2, ";")


def test_the_earlier_of_a_stop_string_and_a_stop_pattern_cuts() -> None:
    for stops, patterns, matched in (((";",), ("f.g",), ";"), ((".end",), ("[f-h]+",), "f")):
        text, end = run([1, 2, 3, 4], stop=stops, stop_regex=patterns)
        assert text == (b"plum" if matched == ";" else b"plum;")
        assert end is not None
        assert end.matched == matched
