"""Text on one side, token ids on the other: what a client or a server needs of a model without running it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from radixrt.protocol.ids import IdArray
from radixrt.protocol.segments import Segment
from radixrt.text.encoder import Prompt, PromptEncoder
from radixrt.text.model_files import ModelFiles
from radixrt.text.program_text import ProgramText, Release
from radixrt.text.tokenizer import Tokenizer, load_tokenizer
from radixrt.text.turns import Turns, derive_turns

__all__ = ["Frontend", "ProgramText", "Prompt", "Release", "frontend_of"]


class Frontend:
    """One a process. It has no sockets and keeps nothing of what it is asked."""

    def __init__(self, tokenizer: Tokenizer, turns: Turns) -> None:
        self.tokenizer = tokenizer
        self.turns = turns
        self._encoder = PromptEncoder(tokenizer, turns)

    @property
    def end_ids(self) -> frozenset[int]:
        """All tokens that end a turn: those of the model's files, and the chat template's."""
        return self.tokenizer.end_ids | self.turns.end_ids

    def open_program(self, program: int = 0) -> ProgramText:
        """The text side of one program; `program` is the id in the events that are made here."""
        return ProgramText(self._encoder, program)

    def role_text(self, previous: Sequence[str], role: str, edge: Literal["begin", "end"]) -> str:
        """What the chat template writes at an edge of a turn of `role` that follows turns of the `previous` roles.

        Raises `InvalidRequest` for a role that the template refuses there, or if the model has no template.
        """
        return self.turns.visible(previous, role, edge)

    def encode_prompt(self, segments: Sequence[Segment]) -> IdArray:
        """A whole prompt as ids; raises `InvalidRequest` for one that is wrong, or empty where the model has no BOS."""
        return self._encoder.prompt(segments).ids

    def encode_to_generate(self, segments: Sequence[Segment]) -> Prompt:
        """The same, and whether its last token may be drawn anew."""
        return self._encoder.prompt(segments)


def frontend_of(files: ModelFiles) -> Frontend:
    """The frontend of a model that is here; raises `UnsupportedModel`."""
    tokenizer = load_tokenizer(files)
    return Frontend(tokenizer, derive_turns(tokenizer))
