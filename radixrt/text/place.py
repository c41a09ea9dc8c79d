"""Where in a conversation a context ends, and how segments continue it turn by turn."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from radixrt.errors import InvalidRequest
from radixrt.protocol.segments import Ids, Raw, Role, Segment, Text
from radixrt.text.prompt import PromptBuilder, checked_ids
from radixrt.text.tokenizer import Tokenizer
from radixrt.text.turns import TurnMarkup, Turns


@dataclass(frozen=True, slots=True)
class Place:
    """The end of a context."""

    empty: bool = True
    """Whether nothing stands before it."""
    roles: tuple[str, ...] = ()
    """The turns so far, an open one included."""
    markup: TurnMarkup | None = None
    """That of the open turn; None outside of turns."""
    content_empty: bool = True
    """Whether the open turn has no content yet."""

    def after_generation(self) -> Place:
        """The same place behind generated tokens."""
        return replace(self, empty=False, content_empty=False)


def extend(
    place: Place, segments: Iterable[Segment], turns: Turns, tokenizer: Tokenizer, builder: PromptBuilder
) -> Place:
    """Add `segments` to `builder`, and say where the context then ends.

    The BOS that a template writes first is left out behind other text.

    A template that trims contents trims the constants at both edges of a turn: those of one node at the end, since a
    node is sent before it is known what follows. Generated tokens are never trimmed.

    Raises `InvalidRequest` for a wrong segment, `NotPrefixStable` where turns cannot be appended.
    """
    text: list[str] = []
    for segment in segments:
        if isinstance(segment, Text):
            text.append(segment.text)
            continue
        ends = isinstance(segment, Role) and segment.edge == "end"
        place = _add_content(place, "".join(text), builder, ends_turn=ends)
        text.clear()
        match segment:
            case Raw(text=rendered):
                builder.add_rendered(rendered)
                place = replace(place, content_empty=place.content_empty and not rendered)
            case Ids(ids=ids):
                builder.add_ids(checked_ids(ids, tokenizer))
                place = replace(place, content_empty=place.content_empty and not ids)
            case Role(role=role, edge="begin"):
                check_begins(role, place.roles[-1] if place.markup else None)
                markup = turns.markup(place.roles, role)
                begin = markup.begin
                if not place.roles and not (place.empty and builder.empty):
                    begin = begin.removeprefix(tokenizer.bos_text)
                builder.add_markup(begin)
                place = Place(place.empty, (*place.roles, role), markup)
            case Role(role=role):
                check_ends(role, place.roles[-1] if place.markup else None)
                assert place.markup is not None
                builder.add_markup(place.markup.end)
                place = replace(place, markup=None)
    place = _add_content(place, "".join(text), builder, ends_turn=False)
    return replace(place, empty=place.empty and builder.empty)


def check_begins(role: str, open_role: str | None) -> None:
    """Raise `InvalidRequest` if a turn cannot begin, since another is open."""
    if open_role is not None:
        message = f"a turn of {role!r} cannot begin inside one of {open_role!r}: end that first"
        raise InvalidRequest(message, field="role")


def check_ends(role: str, open_role: str | None) -> None:
    """Raise `InvalidRequest` if a turn of `role` cannot end, since none is open."""
    if open_role != role:
        inside = "no turn is open" if open_role is None else f"the open turn is of {open_role!r}"
        raise InvalidRequest(f"a turn of {role!r} cannot end here: {inside}", field="role")


def _add_content(place: Place, text: str, builder: PromptBuilder, *, ends_turn: bool) -> Place:
    if place.markup is not None and place.markup.trims:
        text = text.lstrip() if place.content_empty else text
        text = text.rstrip() if ends_turn else text
    builder.add_plain(text)
    return replace(place, content_empty=False) if text else place
