"""A conversation rendered whole, for chat templates whose turns cannot be appended one by one.

The template gets the contents themselves, since it may change them: trim them, or strip the reasoning of earlier
answers. Two things must survive that. What looks like a special token in a content has to stay text, so it goes in
as a private-use mark and comes out as plain text. And generated tokens keep their ids wherever the template leaves
their text as it was, so marks stand around it; if marks would alter what the template does, the text is tokenised
again, which is the only thing left to do then.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from radixrt.errors import InvalidRequest
from radixrt.protocol.ids import IdArray
from radixrt.protocol.segments import Ids, Raw, Role, Segment, Text
from radixrt.text.place import check_begins, check_ends
from radixrt.text.prompt import PromptBuilder, SpecialTokens, checked_ids
from radixrt.text.tokenizer import Tokenizer
from radixrt.text.turns import Turns, check_roles
from radixrt.text.utf8 import encode_utf8


class Known(NamedTuple):
    """Tokens whose ids are settled, and the text that they show."""

    ids: IdArray
    text: str


Part: TypeAlias = Text | Raw | Known


@dataclass
class Conversation:
    """Turns with their contents, and what follows the last whole one."""

    turns: list[tuple[str, list[Part]]] = field(default_factory=list)
    open_role: str | None = None
    tail: list[Part] = field(default_factory=list)
    """The content of the open turn, or text behind all turns."""

    def add(self, segment: Segment | Known, tokenizer: Tokenizer) -> None:
        """Continue with a segment or with generated tokens.

        Raises `InvalidRequest` for turns that are not closed or opened, and for text between turns, of which a
        template knows nothing.
        """
        match segment:
            case Role(role=role, edge="begin"):
                check_begins(role, self.open_role)
                if self.tail:
                    raise InvalidRequest(
                        "this model's chat template has to be rendered whole, so there can be no text before or "
                        "between turns: put it into a turn",
                        field="prompt",
                    )
                self.open_role = role
            case Role(role=role):
                check_ends(role, self.open_role)
                self.turns.append((role, self.tail))
                self.open_role, self.tail = None, []
            case Ids(ids=packed):
                ids = checked_ids(packed, tokenizer)
                self.tail.append(Known(ids, tokenizer.decode(ids)))
            case Text(text="") | Raw(text=""):
                pass
            case Text(text=text) | Raw(text=text):
                encode_utf8(text, "prompt")
                self.tail.append(segment)
            case Known():
                self.tail.append(segment)


def render(conversation: Conversation, turns: Turns, specials: SpecialTokens, builder: PromptBuilder) -> None:
    """Add the whole conversation to `builder`. Raises `InvalidRequest` for what the template refuses."""
    marks = _Marks(specials)
    exact = _rendered(conversation, turns, marks, mark_known=False)
    _check_shown(conversation, marks.removed(exact))
    marked = _rendered(conversation, turns, marks, mark_known=True)
    _add_rendered(marked if marks.removed(marked) == marks.removed(exact) else exact, marks, builder)
    for part in conversation.tail:
        match part:
            case Text(text=text):
                builder.add_plain(text)
            case Raw(text=text):
                builder.add_rendered(text)
            case Known(ids=ids):
                builder.add_ids(ids)


@dataclass(frozen=True, slots=True)
class _Edge:
    """Where a stretch of known tokens begins or ends."""

    known: Known
    begins: bool


class _Marks:
    """Marks in the contents of one conversation. Nobody can guess them, so no content has one by itself."""

    def __init__(self, specials: SpecialTokens) -> None:
        self._prefix = f"\ue000{secrets.randbelow(10**18)}."
        self._meanings: list[str | _Edge] = []
        self.pattern = re.compile(re.escape(self._prefix) + r"(\d+)\ue001")
        self._specials = specials

    def plain(self, text: str) -> str:
        """`text` with marks for what looks like a special token in it."""
        return self._specials.pattern.sub(lambda match: self._mark(match.group()), text)

    def known(self, known: Known) -> str:
        """The text of known tokens between marks."""
        begin, end = self._mark(_Edge(known, begins=True)), self._mark(_Edge(known, begins=False))
        return begin + self.plain(known.text) + end

    def meaning(self, mark: re.Match[str]) -> str | _Edge:
        """What a mark stands for: plain text, or an edge."""
        return self._meanings[int(mark.group(1))]

    def removed(self, text: str) -> str:
        """`text` as it reads without marks."""

        def shown(mark: re.Match[str]) -> str:
            meaning = self.meaning(mark)
            return meaning if isinstance(meaning, str) else ""

        return self.pattern.sub(shown, text)

    def sentinel(self) -> str:
        """A mark that stands for nothing."""
        return self._mark("")

    def _mark(self, meaning: str | _Edge) -> str:
        self._meanings.append(meaning)
        return f"{self._prefix}{len(self._meanings) - 1}\ue001"


def _rendered(conversation: Conversation, turns: Turns, marks: _Marks, *, mark_known: bool) -> str:
    """The template's text up to the tail."""
    role = conversation.open_role
    check_roles([role for role, _ in conversation.turns] + ([role] if role else []))
    messages = [
        {"role": role, "content": _content(parts, marks, mark_known=mark_known)} for role, parts in conversation.turns
    ]
    if role is None or (role == "assistant" and messages):
        return turns.template.render(messages, add_generation_prompt=role is not None)
    sentinel = marks.sentinel()
    text = turns.template.render([*messages, {"role": role, "content": sentinel}], add_generation_prompt=False)
    begin, found, _ = text.partition(sentinel)
    if not found:
        raise InvalidRequest(f"the chat template does not show the content of this {role} turn", field="messages")
    return begin


def _check_shown(conversation: Conversation, text: str) -> None:
    """Raise `InvalidRequest` if the template dropped a turn, as some do with a role where they expect none.

    Of the assistant's turns templates leave out earlier reasoning, and are meant to.
    """
    for role, parts in conversation.turns:
        content = "".join(part.text for part in parts).strip()
        if role != "assistant" and content not in text:
            raise InvalidRequest(
                f"the model's chat template leaves out this {role} turn: {content[:80]!r}", field="messages"
            )


def _content(parts: Sequence[Part], marks: _Marks, *, mark_known: bool) -> str:
    """The content of a turn. Neighbouring plain parts are joined before it is looked for special tokens in them."""
    content, plain = "", ""
    for part in parts:
        if isinstance(part, Text) or (isinstance(part, Known) and not mark_known):
            plain += part.text
            continue
        content += marks.plain(plain)
        plain = ""
        content += part.text if isinstance(part, Raw) else marks.known(part)
    return content + marks.plain(plain)


def _add_rendered(text: str, marks: _Marks, builder: PromptBuilder) -> None:
    start = 0
    for mark in marks.pattern.finditer(text):
        if mark.start() < start:
            continue  # inside known tokens, which went in as one
        builder.add_markup(text[start : mark.start()])
        start = mark.end()
        match marks.meaning(mark):
            case str(plain):
                builder.add_plain(plain)
            case _Edge(known=known, begins=True):
                end = _end_of(known, text, start, marks)
                if end is not None and marks.removed(text[start : end.start()]) == known.text:
                    builder.add_ids(known.ids)
                    start = end.end()
    builder.add_markup(text[start:])


def _end_of(known: Known, text: str, start: int, marks: _Marks) -> re.Match[str] | None:
    for mark in marks.pattern.finditer(text, start):
        meaning = marks.meaning(mark)
        if isinstance(meaning, _Edge) and meaning.known is known and not meaning.begins:
            return mark
    return None
