"""A matcher's state: what it lets through, how it goes back, what it shares."""

from __future__ import annotations

import numpy as np
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from radixrt.grammar.interface import Mask, Matcher, mask_words
from radixrt.grammar.llguidance_backend import LlguidanceBackend, LlguidanceGrammar
from radixrt.protocol.constraint import Choice, JsonObject, JsonSchema, Regex
from radixrt.text.token_bytes import LETTER_OF_BYTE
from radixrt.text.tokenizer import Tokenizer, TokenizerParts

PERSON = JsonSchema('{"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer"}}}')


@pytest.fixture(scope="module")
def compiling(words: Tokenizer) -> LlguidanceBackend:
    return LlguidanceBackend(words)


@pytest.fixture(scope="module")
def person(compiling: LlguidanceBackend) -> LlguidanceGrammar:
    return compiling.compile(PERSON)


def allowed(matcher: Matcher, vocabulary_size: int) -> set[int]:
    mask: Mask = np.full(mask_words(vocabulary_size), -1, np.int32)
    matcher.fill_mask(mask)
    bits = np.unpackbits(mask.view(np.uint8), bitorder="little")
    assert not bits[vocabulary_size:].any()
    return set(np.flatnonzero(bits).tolist())


def test_the_mask_is_what_may_be_accepted(person: LlguidanceGrammar, words: Tokenizer) -> None:
    matcher = person.matcher()
    for token in words.encode('{"name": "Zoë", "age": 4').tolist():
        may_come = allowed(matcher, words.vocabulary_size)
        accepted = {t for t in range(words.vocabulary_size) if matcher.fork().try_accept([t])}
        # Where the text has no choice, the mask has only the token that the model would have chosen for it.
        assert may_come == accepted or (matcher.forced_tokens() and may_come < accepted)
        assert token in accepted
        matcher.accept(token)
    assert len(allowed(matcher, words.vocabulary_size)) > 10


def test_special_tokens_are_never_allowed(compiling: LlguidanceBackend, words: Tokenizer) -> None:
    matcher = compiling.compile(Regex("(?s:.*)")).matcher()
    assert matcher.is_complete
    specials = set(words.special_ids.values())
    assert specials
    assert allowed(matcher, words.vocabulary_size).isdisjoint(specials)
    for token in [*specials, -1, words.vocabulary_size]:
        with pytest.raises(ValueError, match="may not come next"):
            matcher.accept(token)


def test_special_tokens_may_have_any_id() -> None:
    letters = {LETTER_OF_BYTE[byte]: byte + 70 for byte in range(256)}
    holes = {f"<{token}>": token for token in range(70)}
    library = tokenizers.Tokenizer(tokenizers.models.BPE(vocab={**letters, **holes}, merges=[]))
    library.decoder = tokenizers.decoders.ByteLevel()
    library.add_special_tokens(list(holes))
    tokenizer = Tokenizer(TokenizerParts(library))
    assert set(tokenizer.special_ids.values()) == set(range(70))  # with the last bits of words 0 and 1 among them
    matcher = LlguidanceBackend(tokenizer).compile(Regex("(?s:.)*")).matcher()
    found = allowed(matcher, tokenizer.vocabulary_size)
    assert min(found) == 70
    assert found >= set(range(70, 70 + 128))


def test_numbers_of_numpy_are_tokens(person: LlguidanceGrammar, words: Tokenizer) -> None:
    ids = words.encode('{"age": 7}')
    matcher = person.matcher()
    assert matcher.try_accept(ids) == len(ids)  # type: ignore[arg-type]
    matcher.rollback(1)
    matcher.accept(ids[-1])
    assert matcher.is_finished


def test_special_text_is_text(compiling: LlguidanceBackend, words: Tokenizer) -> None:
    text = next(iter(words.special_ids))
    matcher = compiling.compile(Choice((text,))).matcher()
    ids = words.encode(text).tolist()
    assert matcher.try_accept(ids) == len(ids) > 1
    assert matcher.is_finished


def test_a_mask_for_padded_logits_allows_nothing_past_the_vocabulary(
    person: LlguidanceGrammar, words: Tokenizer
) -> None:
    size = mask_words(words.vocabulary_size)
    mask = np.full(size + 3, -1, np.int32)
    person.matcher().fill_mask(mask)
    assert mask[:size].any()
    assert not mask[size:].any()
    with pytest.raises(ValueError, match="words"):
        person.matcher().fill_mask(np.zeros(size - 1, np.int32))
    with pytest.raises(ValueError, match="one piece"):
        person.matcher().fill_mask(np.zeros(2 * size, np.int32)[::2])


def test_a_refused_token_changes_nothing(person: LlguidanceGrammar, words: Tokenizer) -> None:
    matcher = person.matcher()
    matcher.try_accept(words.encode('{"name": "').tolist())
    before = allowed(matcher, words.vocabulary_size)
    newline = words.encode("\n").tolist()
    with pytest.raises(ValueError, match="may not come next"):
        matcher.accept(newline[0])
    assert allowed(matcher, words.vocabulary_size) == before


def test_as_many_tokens_are_tried_as_fit(person: LlguidanceGrammar, words: Tokenizer) -> None:
    good, bad = words.encode('{"name": ').tolist(), words.encode("]]").tolist()
    matcher = person.matcher()
    assert matcher.try_accept(good + bad + good) == len(good)
    assert matcher.try_accept([]) == 0


@given(text=st.sampled_from(['{"name": "a b", "age": 12}', '{"age": -3}', "{}"]), data=st.data())
def test_going_back_is_as_if_never_gone(
    person: LlguidanceGrammar, words: Tokenizer, text: str, data: st.DataObject
) -> None:
    ids = words.encode(text).tolist()
    back = data.draw(st.integers(0, len(ids)))
    gone = person.matcher()
    assert gone.try_accept(ids) == len(ids)
    assert gone.is_finished
    gone.rollback(back)
    never = person.matcher()
    never.try_accept(ids[: len(ids) - back])
    assert allowed(gone, words.vocabulary_size) == allowed(never, words.vocabulary_size)
    assert (gone.is_complete, gone.is_finished) == (never.is_complete, never.is_finished)
    assert gone.forced_tokens() == never.forced_tokens()


def test_no_more_is_taken_back_than_was_accepted(person: LlguidanceGrammar, words: Tokenizer) -> None:
    matcher = person.matcher()
    count = matcher.try_accept(words.encode('{"age": 1').tolist())
    for wrong in (count + 1, -1):
        with pytest.raises(ValueError, match="cannot take back"):
            matcher.fork().rollback(wrong)
        with pytest.raises(ValueError, match="cannot take back"):
            matcher.rollback(wrong)
    matcher.rollback(count)
    assert matcher.try_accept(words.encode("{}").tolist()) > 0
    assert matcher.is_finished


def test_a_fork_goes_its_own_way(person: LlguidanceGrammar, words: Tokenizer) -> None:
    matcher = person.matcher()
    matcher.try_accept(words.encode('{"age": 1').tolist())
    fork = matcher.fork()
    fork.try_accept(words.encode("}").tolist())
    assert fork.is_finished
    assert not matcher.is_complete
    matcher.try_accept(words.encode("7}").tolist())
    assert matcher.is_finished


def test_forced_tokens_are_the_model_s_own(compiling: LlguidanceBackend, words: Tokenizer) -> None:
    sentence = "The harbour fills with boats; "
    matcher = compiling.compile(Regex(sentence + "(yes|no)")).matcher()
    forced = matcher.forced_tokens()
    assert forced == words.encode(sentence).tolist()[: len(forced)]
    assert len(forced) > 1
    assert matcher.try_accept(forced) == len(forced)
    assert matcher.forced_tokens() == []


@pytest.mark.parametrize("options", [("in", "into", "into it"), ("Red", "Red Hat"), ("  x ", "\ty"), ("", "a")])
def test_every_option_is_reached_verbatim(
    compiling: LlguidanceBackend, words: Tokenizer, options: tuple[str, ...]
) -> None:
    grammar = compiling.compile(Choice(options))
    for option in options:
        matcher = grammar.matcher()
        ids = words.encode(option).tolist()
        assert matcher.try_accept(ids) == len(ids)
        assert matcher.is_complete
        assert matcher.is_finished == (not any(o != option and o.startswith(option) for o in options))
        bare = grammar.matcher()
        stripped = words.encode(option.strip()).tolist()
        assert option.strip() in options or not (bare.try_accept(stripped) == len(stripped) and bare.is_complete)


def test_what_allows_only_the_empty_text_is_finished_at_once(compiling: LlguidanceBackend, words: Tokenizer) -> None:
    matcher = compiling.compile(Regex("")).matcher()
    assert matcher.is_finished
    assert allowed(matcher, words.vocabulary_size) == set()
    assert matcher.forced_tokens() == []


def test_white_space_is_bounded(compiling: LlguidanceBackend, words: Tokenizer) -> None:
    grammar = compiling.compile(JsonObject())
    for text, fits in [
        ('{"a": 1, "b": [1, 2]}', True),
        ('{"a":1,"b":[1,2]}', True),
        ('{"a":  1}', False),
        ("{ }", False),
        ('{\n"a": 1}', False),
        ('{"a": 1} ', False),
    ]:
        matcher = grammar.matcher()
        ids = words.encode(text).tolist()
        assert (matcher.try_accept(ids) == len(ids)) == fits, text
