"""Vocabularies of every kind that a GGUF file may carry, beside transformers and beside the definition."""

from __future__ import annotations

import inspect
import itertools
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from radixrt.errors import UnsupportedModel
from radixrt.text.model_files import ModelFiles
from radixrt.text.tokenizer import Tokenizer, load_tokenizer
from tests.text.vocabularies import (
    BYTE,
    CONTROL,
    NORMAL,
    TEXT,
    UNKNOWN,
    USER_DEFINED,
    train_byte_level,
    write_vocabulary,
)

SPECIALS = ["<|bos|>", "<|end|>", "<|turn|>"]
WORDS = r"\p{L}+|\p{N}+|\s+|[^\s\p{L}\p{N}]+"
TEXTS = [
    *TEXT.splitlines(),
    TEXT,
    "we'VE They'Ll don'T 's",
    "  two\n\n \r\n three\t\tfour ",
    "12345 1234567 ½²",
    "e\u0301 is not \u00e9",
    "snake_case camelCase HTTPServer //\n/* x */\n",
    "🧑‍🍳🥝",
]


def byte_level(
    path: Path, pre: str | None, words: str = WORDS, **fields: Any
) -> tuple[ModelFiles, dict[str, int], list]:
    """A GGUF file with a byte-level vocabulary, and the vocabulary and merges by themselves."""
    pieces, merges = train_byte_level(words, SPECIALS)
    types = [CONTROL if piece in SPECIALS else NORMAL for piece in pieces]
    written = {"model": "gpt2", "tokens": pieces, "merges": merges, "token_type": types} | fields
    files = write_vocabulary(path, written if pre is None else written | {"pre": pre})
    return files, {piece: i for i, piece in enumerate(pieces)}, [tuple(merge.split(" ")) for merge in merges]


def test_qwen2_words_are_those_of_transformers(tmp_path):
    from transformers.models.qwen2.tokenization_qwen2 import PRETOKENIZE_REGEX, Qwen2Tokenizer

    files, vocabulary, merges = byte_level(tmp_path / "qwen.gguf", "qwen2", PRETOKENIZE_REGEX)
    ours, oracle = load_tokenizer(files), Qwen2Tokenizer(vocab=vocabulary, merges=merges)
    for text in TEXTS:
        assert ours.encode(text).tolist() == oracle(text)["input_ids"], text


def test_llama_3_words_are_those_of_transformers(tmp_path):
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers
    from transformers.convert_slow_tokenizer import TikTokenConverter

    words = inspect.signature(TikTokenConverter.__init__).parameters["pattern"].default
    files, vocabulary, merges = byte_level(tmp_path / "llama.gguf", "llama-bpe", words)
    oracle = Tokenizer(models.BPE(vocabulary, merges, ignore_merges=True))
    oracle.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(words), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    ours = load_tokenizer(files)
    for text in TEXTS:
        assert ours.encode(text).tolist() == oracle.encode(text).ids, text


def test_gpt_2_words_are_those_of_transformers(tmp_path):
    from transformers import GPT2Tokenizer

    files, vocabulary, merges = byte_level(tmp_path / "gpt2.gguf", "gpt-2")
    ours, oracle = load_tokenizer(files), GPT2Tokenizer(vocab=vocabulary, merges=merges)
    for text in TEXTS:
        assert ours.encode(text).tolist() == oracle(text)["input_ids"], text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("camelCase", ["camel", "Case"]),
        ("HTTPServer", ["HTTPServer"]),
        ("a1234", ["a", "1", "2", "3", "4"]),
        (" /* x //\n\ny", [" /*", " x", " //\n\n", "y"]),
        ("don't", ["don", "'t"]),
    ],
)
def test_tekken_cuts_words_at_capitals_and_every_digit(tmp_path, text, words):
    # Trained on that one text uncut, the vocabulary has it as a token: only a boundary of words can part it.
    files = whole_word_vocabulary(tmp_path / "tekken.gguf", "tekken", words)
    pieces = [load_tokenizer(files).token_bytes(token).decode() for token in load_tokenizer(files).encode(text)]
    assert pieces == words


def whole_word_vocabulary(path: Path, pre: str, words: list[str]) -> ModelFiles:
    """A vocabulary with every stretch of the text that `words` make as a token, which merges build left to right."""
    from tokenizers.pre_tokenizers import ByteLevel

    level = ByteLevel(add_prefix_space=False, use_regex=False)
    letters = level.pre_tokenize_str("".join(words))[0][0]
    stretches = {letters[i:j] for i in range(len(letters)) for j in range(i + 2, len(letters) + 1)}
    ordered = sorted(stretches, key=lambda stretch: (len(stretch), stretch))
    pieces = [*sorted(ByteLevel.alphabet()), *ordered]
    merges = [f"{stretch[:-1]} {stretch[-1]}" for stretch in ordered]
    fields = {"model": "gpt2", "pre": pre, "tokens": pieces, "merges": merges, "token_type": [NORMAL] * len(pieces)}
    return write_vocabulary(path, fields)


@pytest.mark.parametrize("pre", ["deepseek-v3", None])
def test_words_that_are_not_known_are_refused_by_name(tmp_path, pre):
    files, *_ = byte_level(tmp_path / "odd.gguf", pre)
    with pytest.raises(UnsupportedModel, match=f"'{pre or 'default'}'.*gpt-2, smollm, llama-bpe, qwen2, tekken"):
        load_tokenizer(files)


def test_a_kind_of_vocabulary_that_is_not_known_is_refused_by_name(tmp_path):
    files = write_vocabulary(tmp_path / "odd.gguf", {"model": "bert", "tokens": ["a"]})
    with pytest.raises(UnsupportedModel, match=r"'bert'.*gpt2, llama"):
        load_tokenizer(files)


def test_a_file_without_a_vocabulary_is_refused(tmp_path):
    with pytest.raises(UnsupportedModel, match="vocabulary"):
        load_tokenizer(write_vocabulary(tmp_path / "bare.gguf", {}))
    with pytest.raises(UnsupportedModel, match="vocabulary"):
        load_tokenizer(write_vocabulary(tmp_path / "empty.gguf", {"model": "gpt2", "pre": "gpt-2"}))
    with pytest.raises(UnsupportedModel, match="3 tokens, 1 types"):
        load_tokenizer(
            write_vocabulary(tmp_path / "types.gguf", {"model": "gpt2", "tokens": ["a", "b", "c"], "token_type": [1]})
        )
    merges = {"model": "gpt2", "pre": "gpt-2", "tokens": ["a", "b"], "merges": ["a c"]}
    with pytest.raises(UnsupportedModel, match="vocabulary that cannot be used"):
        load_tokenizer(write_vocabulary(tmp_path / "merges.gguf", merges))


@pytest.mark.parametrize(
    ("pre", "fields", "adds_bos"),
    [
        ("llama-bpe", {}, True),
        ("llama-bpe", {"add_bos_token": False}, False),
        ("qwen2", {}, False),
        ("qwen2", {"add_bos_token": True}, True),
    ],
)
def test_a_bos_is_added_where_the_file_or_else_the_family_wants_it(tmp_path, pre, fields, adds_bos):
    files, *_ = byte_level(tmp_path / "bos.gguf", pre, bos_token_id=0, **fields)
    tokenizer = load_tokenizer(files)
    assert tokenizer.adds_bos is adds_bos
    assert tokenizer.encode_rendered("The tide").tolist()[:1] == ([0] if adds_bos else tokenizer.encode("The")[:1])


def test_ends_of_text_turn_and_message_all_count(tmp_path):
    files, *_ = byte_level(tmp_path / "ends.gguf", "qwen2", eos_token_id=1, eot_token_id=2, eom_token_id=300)
    assert load_tokenizer(files).end_ids == {1, 2, 300}


def test_what_a_stop_leaves_of_composed_text_keeps_its_bytes(tmp_path):
    files, *_ = byte_level(tmp_path / "qwen.gguf", "qwen2")
    tokenizer = load_tokenizer(files)
    apart = "e\u0301".encode()
    assert b"".join(map(tokenizer.token_bytes, tokenizer.encode("e\u0301").tolist())) == "\u00e9".encode()
    assert b"".join(map(tokenizer.token_bytes, tokenizer.encode_bytes(apart).tolist())) == apart


# -- SentencePiece ----------------------------------------------------------------------------------------------------

LETTERS = "▁abcž<0x4>"
UNIONS = ["ab", "▁a", "bc", "abc", "▁▁", "ca", "▁ab", "ba", "▁▁▁▁", "aa", "žb", "▁abc", "cab", "aaa"]
"""Pieces of more than one letter, the best score first."""
MARKS = ["<unk>", "<s>", "</s>"]
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
PIECES = [*MARKS, *BYTES, *sorted(set(LETTERS)), *UNIONS, "[INST]"]
SCORES = [0.0] * (len(PIECES) - len(UNIONS) - 1) + [-float(i) for i in range(len(UNIONS))] + [0.0]
TYPES = [UNKNOWN, CONTROL, CONTROL, *[BYTE] * 256, *[NORMAL] * len(set(LETTERS) | set(UNIONS)), USER_DEFINED]


@pytest.fixture(scope="module")
def sentencepiece(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    path = tmp_path_factory.mktemp("spm") / "small.gguf"
    fields = {"model": "llama", "tokens": PIECES, "scores": SCORES, "token_type": TYPES}
    return load_tokenizer(write_vocabulary(path, fields | {"bos_token_id": 1, "eos_token_id": 2}))


def by_definition(text: str) -> list[int]:
    """SentencePiece's BPE, word for word: always the best scored union of neighbours, the leftmost of equals."""
    pieces = list(text.replace(" ", "▁"))
    while True:
        unions = [(i, a + b) for i, (a, b) in enumerate(itertools.pairwise(pieces)) if a + b in UNIONS]
        if not unions:
            break
        at, union = min(unions, key=lambda found: UNIONS.index(found[1]))
        pieces[at : at + 2] = [union]
    ids = []
    for piece in pieces:
        ids += [PIECES.index(piece)] if piece in PIECES else [3 + byte for byte in piece.encode()]
    return ids


@given(st.text(LETTERS + " 🥝x", max_size=30))
def test_sentencepiece_merges_by_score_and_falls_back_to_bytes(sentencepiece: Tokenizer, text: str) -> None:
    assert sentencepiece.encode(text).tolist() == by_definition(text)


@given(st.text("abcž 🥝\n", min_size=1, max_size=20))
def test_only_a_text_that_starts_a_context_gets_the_space_before_its_first_word(
    sentencepiece: Tokenizer, text: str
) -> None:
    started = sentencepiece.encode(text, starts_context=True)
    assert started.tolist() == by_definition(text if text.startswith(" ") else f" {text}")
    assert sentencepiece.decode(started, starts_context=True) == text.removeprefix(" ")
    assert sentencepiece.decode(sentencepiece.encode(text)) == text


def test_the_pieces_of_a_context_join_without_spaces(sentencepiece: Tokenizer) -> None:
    ids = [*sentencepiece.encode("ab", starts_context=True), *sentencepiece.encode("c"), *sentencepiece.encode(" a")]
    assert sentencepiece.decode(ids, starts_context=True) == "abc a"


def test_a_sentencepiece_prompt_begins_with_one_bos(sentencepiece: Tokenizer) -> None:
    assert sentencepiece.encode_rendered("ab").tolist() == [1, PIECES.index("▁ab")]
    assert sentencepiece.encode_rendered("<s>ab").tolist() == [1, PIECES.index("ab")]


def test_sentencepiece_bytes_and_marks_are_known_for_what_they_are(sentencepiece: Tokenizer) -> None:
    assert sentencepiece.token_bytes(PIECES.index("▁ab")) == b" ab"
    assert sentencepiece.token_bytes(PIECES.index("<0x0A>")) == b"\n"
    assert sentencepiece.token_bytes(PIECES.index("[INST]")) == b"[INST]"
    assert [sentencepiece.token_bytes(token) for token in range(3)] == [b"", b"", b""]
    assert dict(sentencepiece.special_ids) == {"<unk>": 0, "<s>": 1, "</s>": 2}


def test_plain_text_keeps_added_words_whole_but_takes_no_special_token(sentencepiece: Tokenizer) -> None:
    assert PIECES.index("[INST]") in sentencepiece.encode("a[INST]b")
    assert not {0, 1, 2} & set(sentencepiece.encode("a</s>b<unk>").tolist())


def test_a_cut_token_of_bytes_keeps_them(sentencepiece: Tokenizer) -> None:
    data = " ab🥝".encode()
    for size in range(len(data) + 1):
        ids = sentencepiece.encode_bytes(data[:size]).tolist()
        assert b"".join(map(sentencepiece.token_bytes, ids)) == data[:size]


@pytest.mark.parametrize("scheme", ["normalizer", "always", "first"])
def test_every_way_to_ask_for_the_first_space_holds_inside_no_context(tmp_path, scheme):
    """Hugging Face folders write the rule in three ways."""
    from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers

    ids = {piece: i for i, piece in enumerate(PIECES)}
    made = Tokenizer(models.BPE(ids, [("▁", "a"), ("a", "b"), ("▁", "ab")], byte_fallback=True, unk_token="<unk>"))
    if scheme == "normalizer":
        made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    else:
        made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=False)
    made.add_special_tokens([AddedToken(mark, special=True, normalized=False) for mark in MARKS])
    made.save(str(tmp_path / "tokenizer.json"))
    ours = load_tokenizer(ModelFiles("folder", folder=tmp_path))
    assert made.encode("b c").ids == ours.encode("b c", starts_context=True).tolist()
    assert ours.decode(made.encode("b c").ids) == " b c"
    assert ours.decode(ours.encode("b c")) == "b c"
