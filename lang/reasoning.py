"""What a reasoning model thinks before it answers, kept apart from the answer.

    s += assistant(separate_reasoning(gen("answer"), model_type="qwen3"))
    s["answer"], s["answer_reasoning_content"]

Only the variables are taken apart. Text and context keep what was generated: the reasoning's tokens are in the cache,
and what follows is conditioned on them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, TypeAlias

from radixrt.errors import InvalidRequest
from radixrt.lang.expressions import Expression, Gen, Piece, Sequenced
from radixrt.lang.results import Generation

Part: TypeAlias = Literal["reasoning", "answer"]


class Separated(NamedTuple):
    """Nothing of the text is lost but the marks around the reasoning."""

    reasoning: str
    answer: str


@dataclass(frozen=True, slots=True)
class ReasoningFormat:
    """The marks that a family of models puts around its reasoning."""

    begin: str
    end: str
    always: bool
    """Whether a text is reasoning from its start, `begin` having been written by the chat template."""

    def separate(self, text: str) -> Separated:
        """Text without an `end` is all reasoning if it has begun to be: `max_tokens` cut it.

        >>> THINK.separate("<think>Two and two.</think>4")
        Separated(reasoning='Two and two.', answer='4')
        """
        thought = text.lstrip().removeprefix(self.begin)
        if thought == text.lstrip():
            if not self.always:
                return Separated("", text)
            thought = text
        reasoning, _, answer = thought.partition(self.end)
        return Separated(reasoning, answer)


THINK = ReasoningFormat("<think>", "</think>", always=False)
_THINKING = replace(THINK, always=True)
_FORMATS: Mapping[str, ReasoningFormat] = {
    "deepseek-r1": _THINKING,
    "deepseek-v3": THINK,
    "glm45": THINK,
    "interns1": THINK,
    "kimi": ReasoningFormat("◁think▷", "◁/think▷", always=False),
    "kimi_k2": THINK,
    "minimax": _THINKING,
    "qwen3": THINK,
    "qwen3-thinking": _THINKING,
    "step3": _THINKING,
}
"""By SGLang's names. What it tells apart by other means than two marks (`gpt-oss`, `mistral`, ...) is not here."""


@dataclass(frozen=True, slots=True)
class SeparatedText:
    """The value of a variable: one part of what a generation comes to."""

    generation: Generation
    format: ReasoningFormat
    part: Part

    def value(self) -> str | list[str]:
        """The part of the text, or (`n` > 1) the list of them. Raises the failure. To be read when complete."""
        self.generation.raise_failure()
        parts = [getattr(self.format.separate(choice.text), self.part) for choice in self.generation.choices]
        return parts if self.generation.n > 1 else parts[0]


def separate_reasoning(expr: Expression, model_type: str) -> Sequenced:
    """Keep the reasoning of each gen in `expr` apart: `name` is the answer, `name_reasoning_content` what came before.

    `model_type` is one of SGLang's names of formats that two marks make up: "deepseek-r1", "deepseek-v3", "glm45",
    "interns1", "kimi", "kimi_k2", "minimax", "qwen3", "qwen3-thinking" or "step3". Selects stay as they are.

    Raises `InvalidRequest` for another format, and for a gen without a name.
    """
    if model_type not in _FORMATS:
        known = ", ".join(_FORMATS)
        raise InvalidRequest(f"model_type is {model_type!r}; known are: {known}", field="model_type")
    if not isinstance(expr, Expression):
        raise InvalidRequest(f"separate_reasoning takes an expression such as gen(...), not {expr!r}", field="expr")
    return Sequenced(tuple(_separated(piece, _FORMATS[model_type]) for piece in expr.pieces()))


def reasoning_name(name: str) -> str:
    """The variable that keeps the reasoning of the gen `name`."""
    return f"{name}_reasoning_content"


def _separated(piece: Piece, format: ReasoningFormat) -> Piece:
    if not isinstance(piece, Gen):
        return piece
    if piece.name is None:
        raise InvalidRequest("the gen has no name, under which its reasoning could be kept", field="name")
    return replace(piece, reasoning=format)
