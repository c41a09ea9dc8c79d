"""The whole text matches, as `re.fullmatch` says; what no automaton can say is refused."""

from __future__ import annotations

import json
import re
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from radixrt.errors import InvalidConstraint
from radixrt.grammar.interface import GrammarBackend
from radixrt.grammar.llguidance_backend import LlguidanceBackend
from radixrt.grammar.outlines_backend import OutlinesBackend
from radixrt.protocol.constraint import Regex
from radixrt.text.regex.translate import full_match_pattern, search_pattern
from radixrt.text.tokenizer import Tokenizer
from tests.support.grammars import accepts, compile_schema

CASES = [json.loads(line) for line in (Path(__file__).parents[1] / "cases/regexes.jsonl").read_text().splitlines()]
FEW = (
    "date",
    "float",
    "exp_dfa",
    "w_unicode",
    "anchor_mid",
    "lazy",
    "emoji",
    "icase",
    "dot_nl",
    "empty_alt",
    "backref",
)


def check_case(backend: GrammarBackend, case: dict[str, Any]) -> None:
    if case["refuse"]:
        with pytest.raises(InvalidConstraint, match="not supported") as error:
            backend.compile(Regex(case["pattern"]))
        assert error.value.field == "regex"
        return
    grammar = backend.compile(Regex(case["pattern"]))
    for sample in case["samples"]:
        assert accepts(grammar, sample["text"]) == sample["matches"], sample


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_patterns_of_the_world(backend: LlguidanceBackend, case: dict[str, Any]) -> None:
    check_case(backend, case)


@pytest.mark.parametrize("name", FEW)
def test_patterns_of_the_world_by_outlines_core(letters: Tokenizer, name: str) -> None:
    check_case(OutlinesBackend(letters), next(case for case in CASES if case["name"] == name))


ATOMS = ["a", "b", "[ab]", "[^a]", ".", "^", "$", "(?:)", r"\d", r"\W", r"[^\w]", "(?i:b)", "(?s:.)", r"\n", "[b-é]"]
PATTERNS = st.recursive(
    st.sampled_from(ATOMS),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map("".join),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: f"({'|'.join(parts)})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "{0,2}", "{2,}", "*?"])).map(
            lambda parts: f"(?:{parts[0]}){parts[1]}"
        ),
    ),
    max_leaves=6,
)
TEXTS = st.text(alphabet="abBé1 \n", max_size=5)


@given(pattern=PATTERNS, texts=st.lists(TEXTS, min_size=3, max_size=8))
def test_a_pattern_matches_what_python_says(backend: LlguidanceBackend, pattern: str, texts: list[str]) -> None:
    try:
        grammar = backend.compile(Regex(pattern))
    except InvalidConstraint as refusal:
        reason = str(refusal)
        if "no text" in reason:
            assert not any(re.fullmatch(pattern, text) for text in ("", *texts) if "\n" not in text), pattern
        elif "an anchor" not in reason:
            raise
        return
    for text in ("", "a", "ab", *texts):
        # A $ before the newline that ends the text is read as the end of the text only.
        if not ("$" in pattern and "\n" in text):
            assert accepts(grammar, text) == bool(re.fullmatch(pattern, text)), (pattern, text)


@given(pattern=PATTERNS, texts=st.lists(TEXTS, min_size=3, max_size=8))
def test_a_schema_s_pattern_is_searched_for(backend: LlguidanceBackend, pattern: str, texts: list[str]) -> None:
    try:
        grammar = compile_schema(backend, {"type": "string", "pattern": pattern})
    except InvalidConstraint:
        return
    for text in ("", "ab", *texts):
        accepted = accepts(grammar, json.dumps(text, ensure_ascii=False))
        # Of what ECMA 262 and Python read differently, only what both accept is written.
        assert bool(re.search(pattern, text)) or not accepted, (pattern, text)
        if text.isascii() and "\n" not in text:
            assert accepted == bool(re.search(pattern, text)), (pattern, text)


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(", r"\( without its \)"),
        ("a)", r"\) without its \("),
        ("[z", r"\[ without its \]"),
        ("*a", "nothing to repeat"),
        ("a**", "repetition of a repetition"),
        ("a{3,1}", "at least 3 and at most 1"),
        ("a{2000000}", "more than 1000000"),
        ("\\", "ends too early"),
        (r"\q", "unknown escape"),
        (r"\x4", "2 hexadecimal digits"),
        ("[z-a]", "range"),
        (r"[a-\d]", "range"),
        ("[[:alpha:]]", "POSIX"),
        ("(?P<1>a)", "unknown kind of group"),
        ("(?P=n)", "backreference"),
        ("(?<=a)b", "lookbehind"),
        ("(?>a)", "atomic"),
        ("(?(1)a|b)", "conditional"),
        ("a*+", "possessive"),
        ("(?m)^a", "flag m"),
        ("(?x)a b", "flag x"),
        (r"\Bb", "word boundary"),
        ("(^a)+", "anchor"),
        ("a$b", "no text"),
        ("\ud800", "surrogate"),
        ("(" * 200 + ")" * 200, "deeper than 100"),
    ],
)
def test_what_cannot_be_read_is_refused_with_the_reason(pattern: str, reason: str) -> None:
    with pytest.raises(InvalidConstraint, match=reason):
        full_match_pattern(pattern)


@pytest.mark.parametrize("letter", ["d", "w", "s", "D", "W", "S"])
def test_classes_are_python_s_for_every_character(backend: LlguidanceBackend, letter: str) -> None:
    python = re.compile(f"\\{letter}")
    grammar = backend.compile(Regex(f"\\{letter}"))
    # Of characters that Python does not know yet, the library may know more.
    some = [*range(0x700), *range(0x700, 0x3400, 5), *range(0xA000, 0xD7A4, 31), 0xFEFF, 0x1D7D8, 0x1F600]
    codes = [code for code in some if unicodedata.category(chr(code)) != "Cn"]
    wrong = [hex(code) for code in codes if bool(python.match(chr(code))) != accepts(grammar, chr(code))]
    assert wrong == []


def test_both_readings_of_a_schema_s_pattern_hold() -> None:
    assert search_pattern(r"^\d$") == "[0-9]"
    assert search_pattern(r"^\D$") == r"[[^\p{Nd}]]"
    assert search_pattern(r"^\D$", both_dialects=False) == "[[^0-9]]"
    assert search_pattern(r"^[^\d]$") == r"[^\p{Nd}]"


@pytest.mark.parametrize(
    ("pattern", "texts"),
    [
        (r"^\u{1F600}$", ["😀"]),
        (r"^\uD83D\uDE00$", ["😀"]),
        (r"^\/\-\cJ$", ["/-\n"]),
        ("^[^]$", ["\n"]),
        (r"^[\u0000-\uFFFF]$", ["é"]),
        (r"^\p{Lu}$", ["É"]),
        ("^(?<name>a)$", ["a"]),
    ],
)
def test_ecma_has_its_own_ways(backend: LlguidanceBackend, pattern: str, texts: list[str]) -> None:
    grammar = compile_schema(backend, {"type": "string", "pattern": pattern})
    for text in texts:
        assert accepts(grammar, json.dumps(text, ensure_ascii=False)), text
