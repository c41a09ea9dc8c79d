"""Small GGUF files that hold a vocabulary and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gguf import GGUFWriter
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

from radixrt.text.model_files import ModelFiles

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6

TEXT = """
The tide comes in twice a day, and twice a day the harbour fills with boats that left before the SUN was up. In 1969
people walked on the moon, 384400 kilometres away; they've come home after 8 days, 3 hours and 18 minutes. We'll SEE!
def addNumbers(leftHand, rightHand):\n\treturn leftHand + rightHand  // a comment\n\n\nclass HTTPServer: pass
Žluťoučký kůň úpěl ďábelské ódy. 書道は楽しい。
"""


def train_byte_level(words: str, specials: list[str]) -> tuple[list[str], list[str]]:
    """Pieces in order of id, and merges ("left right"), of a byte-level BPE trained on words that a regex cuts."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(words), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=700,
        special_tokens=specials,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([TEXT], trainer)
    ids = tokenizer.get_vocab()
    pieces = sorted(ids, key=lambda piece: ids[piece])
    return pieces, [" ".join(pair) for pair in json.loads(tokenizer.to_str())["model"]["merges"]]


def write_vocabulary(path: Path, fields: dict[str, Any]) -> ModelFiles:
    """A GGUF file with `tokenizer.ggml.*` fields."""
    writer = GGUFWriter(path, "llama")
    for name, value in fields.items():
        key = f"tokenizer.ggml.{name}"
        if isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        elif isinstance(value, str):
            writer.add_string(key, value)
        else:
            writer.add_array(key, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return ModelFiles(path.stem, gguf=path)
