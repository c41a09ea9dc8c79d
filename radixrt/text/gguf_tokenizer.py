"""A tokenizer from the vocabulary that a GGUF file carries (ggml's docs/gguf.md, section "Tokenizer")."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from radixrt.errors import UnsupportedModel
from radixrt.text.gguf import GgufFile
from radixrt.text.tokenizer import TokenizerParts

_UNKNOWN, _CONTROL, _USER_DEFINED = 2, 3, 4
"""Types of tokens."""
_END_FIELDS = ("eos_token_id", "eot_token_id", "eom_token_id")

_LLAMA3_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
_QWEN2_WORDS = _LLAMA3_WORDS.replace(r"\p{N}{1,3}", r"\p{N}")
_TEKKEN_WORDS = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def _split(words: str) -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(words), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def _gpt2() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.ByteLevel(add_prefix_space=False)


def _smollm() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), _gpt2()])


_PRE_TOKENIZERS: dict[str, Callable[[], pre_tokenizers.PreTokenizer]] = {
    "gpt-2": _gpt2,
    "smollm": _smollm,
    "llama-bpe": lambda: _split(_LLAMA3_WORDS),
    "qwen2": lambda: _split(_QWEN2_WORDS),
    "tekken": lambda: _split(_TEKKEN_WORDS),
}
"""How text is cut into words before byte-level BPE, by `tokenizer.ggml.pre`."""
_MADE_BY_TIKTOKEN = ("llama-bpe", "tekken")
"""Vocabularies in which a word that is a token is never cut, and whose texts begin with a BOS unless the file says no
(so in llama.cpp, which files rely on)."""


def read_gguf_tokenizer(path: Path) -> TokenizerParts:
    """Raises `UnsupportedModel` for a kind of vocabulary or of words that is not known, naming those that are."""
    file = GgufFile(path)

    def field(name: str, default: Any = None) -> Any:
        return file.field(f"tokenizer.ggml.{name}", default)

    kind, pre, pieces = field("model"), field("pre", "default"), field("tokens", [])
    scores, types = field("scores", []), field("token_type", [])
    if not pieces or any(counted and len(counted) != len(pieces) for counted in (scores, types)):
        raise UnsupportedModel(f"{path} has no whole vocabulary: {len(pieces)} tokens, {len(types)} types")
    if kind == "gpt2":
        tokenizer = _byte_level(pieces, field("merges", []), pre, path)
    elif kind == "llama" and scores:
        tokenizer = _sentencepiece(pieces, scores, add_space=field("add_space_prefix", True))
    else:
        raise UnsupportedModel(f"{path} has a vocabulary of kind {kind!r}; known are: gpt2, llama with scores")
    _add_tokens(tokenizer, pieces, types)
    bos, eos = field("bos_token_id"), field("eos_token_id")
    return TokenizerParts(
        tokenizer=tokenizer,
        bos=None if bos is None else tokenizer.id_to_token(bos),
        eos=None if eos is None else tokenizer.id_to_token(eos),
        adds_bos=field("add_bos_token", kind == "llama" or pre in _MADE_BY_TIKTOKEN),
        end_ids=frozenset(end for end in map(field, _END_FIELDS) if end is not None),
        chat_template=file.field("tokenizer.chat_template", None),
    )


def _byte_level(pieces: list[str], merges: list[str], pre: str, path: Path) -> Tokenizer:
    make_words = _PRE_TOKENIZERS.get(pre)
    if make_words is None:
        known = ", ".join(_PRE_TOKENIZERS)
        raise UnsupportedModel(f"{path} cuts text into words as {pre!r} does; known are: {known}")
    pairs = [(left, right) for left, _, right in (merge.partition(" ") for merge in merges)]
    ids = {piece: i for i, piece in enumerate(pieces)}
    try:
        tokenizer = Tokenizer(models.BPE(ids, pairs, ignore_merges=pre in _MADE_BY_TIKTOKEN))
    except Exception as error:  # The library raises nothing narrower.
        raise UnsupportedModel(f"{path} has a vocabulary that cannot be used: {error}") from error
    if pre == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = make_words()
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _sentencepiece(pieces: list[str], scores: list[float], *, add_space: bool) -> Tokenizer:
    """SentencePiece's BPE: of two neighbouring pieces those are merged whose union has the highest score."""
    ids = {piece: i for i, piece in enumerate(pieces)}
    merges = sorted(
        (-scores[i], ids[piece[:cut]], ids[piece[cut:]], piece[:cut], piece[cut:])
        for i, piece in enumerate(pieces)
        for cut in range(1, len(piece))
        if piece[:cut] in ids and piece[cut:] in ids
    )
    model = models.BPE(
        ids, [(left, right) for *_, left, right in merges], unk_token="<unk>", fuse_unk=True, byte_fallback=True
    )
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first" if add_space else "never", split=False)
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return tokenizer


def _add_tokens(tokenizer: Tokenizer, pieces: list[str], types: list[int]) -> None:
    """Declare the tokens that are not found by merging."""
    typed = list(zip(pieces, types, strict=False))
    special = [
        AddedToken(piece, special=True, normalized=False) for piece, kind in typed if kind in (_UNKNOWN, _CONTROL)
    ]
    user = [AddedToken(piece, special=False, normalized=False) for piece, kind in typed if kind == _USER_DEFINED]
    tokenizer.add_special_tokens(special)
    tokenizer.add_tokens(user)
