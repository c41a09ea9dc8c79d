"""Segments to token ids, the two ways: continuing a context, or a whole context at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from radixrt.errors import InvalidRequest
from radixrt.protocol.ids import IdArray, as_ids
from radixrt.protocol.options import Options, check_options
from radixrt.protocol.segments import Chosen, Fork, Generated, Segment, Text
from radixrt.text.conversation import Conversation, Known, render
from radixrt.text.place import Place, extend
from radixrt.text.prompt import PromptBuilder, SpecialTokens, checked_ids
from radixrt.text.select_plan import SelectPlan, plan_select
from radixrt.text.tokenizer import Tokenizer
from radixrt.text.turns import NotPrefixStable, Turns


class Prompt(NamedTuple):
    """Token ids to compute."""

    ids: IdArray
    ends_as_text: bool = False
    """Whether the last of them is text that somebody wrote: it may be drawn anew (`SamplingParams.heal`)."""


class PromptEncoder:
    """Tokenises for one model. Stateless: where a context ends is a `Place` that the caller keeps."""

    def __init__(self, tokenizer: Tokenizer, turns: Turns) -> None:
        self._tokenizer = tokenizer
        self._turns = turns
        self._specials = SpecialTokens(tokenizer)

    def prompt(self, segments: Sequence[Segment]) -> Prompt:
        """A whole prompt, to generate from. Raises `InvalidRequest` for a wrong segment, or if there is none."""
        try:
            return self.continuation(Place(), segments, generates=True)[0]
        except NotPrefixStable:
            return self.whole(segments)

    def token_texts(self, tokens: Iterable[int]) -> dict[int, str]:
        """What each token is written as."""
        return {token: self._tokenizer.token_text(token) for token in tokens}

    def continuation(self, place: Place, segments: Iterable[Segment], *, generates: bool) -> tuple[Prompt, Place]:
        """The ids of `segments` behind `place`, and where the context then ends. To generate from nothing takes a BOS.

        Raises `InvalidRequest` for a wrong segment, `NotPrefixStable` where only `whole` is right.
        """
        builder = self._builder()
        end = self._extend(place, segments, builder)
        if generates and end.empty:
            return Prompt(self._lone_bos()), end
        return Prompt(builder.ids(starts_context=place.empty), builder.ends_as_text), end

    def whole(self, parts: Iterable[Segment | Known]) -> Prompt:
        """A context from its start, with what was generated in it, its turns rendered whole.

        Raises `InvalidRequest` for a wrong segment, or for text before or between turns.
        """
        builder = self._whole(parts)
        if builder.empty:
            return Prompt(self._lone_bos())
        return Prompt(builder.ids(starts_context=True), builder.ends_as_text)

    def generated(self, ids: IdArray, text: str, healed: int) -> Known | Text:
        """What was generated, for a conversation rendered whole.

        By its text alone if its first token was `healed` (see `events.Finished`) and says more than the one before it
        did: no ids stand for just what was generated.
        """
        if not healed:
            return Known(ids, text)
        first = self._tokenizer.token_bytes(int(ids[0])) if ids.size else b""
        return Known(ids[1:], text) if len(first) == healed else Text(text)

    def options(self, place: Place, segments: Iterable[Segment], options: Options) -> tuple[SelectPlan, Place]:
        """The plan of a select behind `segments` behind `place`, and where the context then ends.

        Raises as `continuation`, and `InvalidRequest` for wrong options or with nothing that stands before them.
        """
        builder = self._builder()
        end = self._extend(place, segments, builder)
        return self._plan(builder, options, starts_context=place.empty), end.after_generation()

    def whole_options(self, parts: Iterable[Segment | Known], options: Options) -> SelectPlan:
        """The plan of a select behind a context that is rendered whole. Raises as `whole`, and for wrong options."""
        builder = self._whole(parts)
        return self._plan(builder, options, starts_context=True)

    def _extend(self, place: Place, segments: Iterable[Segment], builder: PromptBuilder) -> Place:
        """`place.extend`, which knows nothing of a program's past: that is what its nodes made of it, one by one."""
        starts_context = place.empty
        stretch: list[Segment] = []
        for segment in segments:
            if not isinstance(segment, Fork | Generated | Chosen):
                stretch.append(segment)
                continue
            place = extend(place, stretch, self._turns, self._tokenizer, builder)
            stretch.clear()
            match segment:
                case Fork():
                    builder.add_border()
                case Generated(ids=ids, healed=healed):
                    if place.empty:
                        builder.add_ids(self._lone_bos())
                    if healed:
                        builder.take_back(starts_context=starts_context)
                    builder.add_border()  # there may be no ids: the end of a turn is none of a context
                    builder.add_ids(checked_ids(ids, self._tokenizer))
                    place = place.after_generation()
                case Chosen(options=options, chosen=chosen):
                    _check_chosen(chosen, options)
                    plan = self._plan(builder, options, starts_context=starts_context)
                    builder.replace(np.concatenate([plan.shared, plan.options[chosen]]))
                    place = place.after_generation()
        return extend(place, stretch, self._turns, self._tokenizer, builder)

    def _plan(self, builder: PromptBuilder, options: Options, *, starts_context: bool) -> SelectPlan:
        bos = self._tokenizer.bos_id
        return plan_select(
            builder,
            options,
            starts_context=starts_context,
            bos=as_ids([] if bos is None else [bos]),
            adds_bos=self._tokenizer.adds_bos,
        )

    def _whole(self, parts: Iterable[Segment | Known]) -> PromptBuilder:
        """A context from its start, its turns rendered whole, not tokenised yet."""
        conversation = Conversation()
        for part in self._settled(parts):
            conversation.add(part, self._tokenizer)
        builder = self._builder()
        render(conversation, self._turns, self._specials, builder)
        return builder

    def _settled(self, parts: Iterable[Segment | Known]) -> list[Segment | Known]:
        """`parts` with what a program's past left in place of what says how."""
        settled: list[Segment | Known] = []
        for part in parts:
            match part:
                case Fork():
                    pass  # A whole context is tokenised at once.
                case Generated(ids=packed, healed=healed):
                    ids = checked_ids(packed, self._tokenizer)
                    data = b"".join(self._tokenizer.token_bytes(token) for token in ids.tolist())
                    settled.append(self.generated(ids, data[healed:].decode(errors="replace"), healed))
                case Chosen(options=options, chosen=chosen):
                    _check_chosen(chosen, options)
                    settled.append(self.whole_options(settled, options).known[chosen])
                case _:
                    settled.append(part)
        return settled

    def _builder(self) -> PromptBuilder:
        return PromptBuilder(self._tokenizer, self._specials)

    def _lone_bos(self) -> IdArray:
        if self._tokenizer.bos_id is None:
            raise InvalidRequest(
                "the prompt is empty, and this model has no token that begins a text: begin with some text",
                field="prompt",
            )
        return as_ids([self._tokenizer.bos_id])


def _check_chosen(chosen: int, options: Options) -> None:
    count = len(check_options(options.texts))
    if not 0 <= chosen < count:
        raise InvalidRequest(f"chosen is {chosen}; there are options 0 to {count - 1}", field="prompt")
