"""A select's options as token ids: what they have in common, and what is scored of each.

Prompt and option are tokenised as one text where a tokenizer may join them, since "#" and "any" may be one token. Let L
be the longest common prefix of all these tokenisations, shortened so that every option keeps a token (of "in" and
"into" one may be the beginning of the other). An option's score is that of its tokens after L: all options are scored
behind the same context, and nothing of an option is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from radixrt.errors import InvalidRequest
from radixrt.protocol.ids import IdArray
from radixrt.protocol.options import Options, check_options
from radixrt.protocol.segments import Text
from radixrt.text.conversation import Known
from radixrt.text.prompt import PromptBuilder


@dataclass(frozen=True, slots=True)
class SelectPlan:
    """What a select's scoring takes."""

    shared: IdArray
    """The ids that all options have in common, behind the context that the select continues: the end of L."""
    options: tuple[IdArray, ...]
    """The ids of each option after them, at least one."""
    known: tuple[Known | Text, ...]
    """Each option as a conversation rendered whole has it: by its ids, if they stand for its text alone."""
    alone: IdArray
    """What begins a text of its own: the BOS, where the tokenizer writes one before every text, else nothing."""


def plan_select(
    builder: PromptBuilder, options: Options, *, starts_context: bool, bos: IdArray, adds_bos: bool
) -> SelectPlan:
    """The plan for options behind what was added to `builder`.

    `bos` stands in front where nothing else would stand before the first token; `adds_bos` says whether the tokenizer
    writes it before every text. Raises `InvalidRequest` for wrong options, and where there is no BOS (`bos` is empty)
    but one is needed.
    """
    texts = check_options(options.texts)
    head, endings = builder.endings([*texts, ""], starts_context=starts_context)
    bare = endings.pop()
    for index, ids in enumerate(endings):
        if not ids.size:
            raise InvalidRequest(f"choices[{index}] has no tokens in this vocabulary", field=f"choices[{index}]")
    common = _common_length(endings)
    shared = np.concatenate([head, endings[0][:common]])
    if starts_context and not shared.size:
        if not bos.size:
            raise InvalidRequest(
                "nothing stands before the options, and this model has no token that begins a text: begin with some "
                "text",
                field="prompt",
            )
        shared = bos
    return SelectPlan(
        shared,
        tuple(ids[common:] for ids in endings),
        tuple(_known(text, ids, bare) for text, ids in zip(texts, endings, strict=True)),
        bos if adds_bos else bos[:0],
    )


def _common_length(sequences: Sequence[IdArray]) -> int:
    """Tokens that all sequences begin with, less what leaves each of them one."""
    most = min(map(len, sequences)) - 1
    table = np.stack([ids[:most] for ids in sequences])
    differ = (table != table[0]).any(axis=0)
    return int(differ.argmax()) if differ.any() else most


def _known(text: str, ids: IdArray, bare: IdArray) -> Known | Text:
    """An option whose tokenisation is `ids`, behind constants that are `bare` without it."""
    if len(ids) > len(bare) and np.array_equal(ids[: len(bare)], bare):
        return Known(ids[len(bare) :], text)
    return Text(text)
