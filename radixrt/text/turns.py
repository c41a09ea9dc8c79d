"""What a chat template writes around the turns of a conversation, found by rendering it.

A template is a program from messages to text and says nowhere where a turn begins. So conversations are rendered whose
contents are sentinels, and what stands between them is the markup. That is worth something only for a *prefix-stable*
template: each turn is appended to what was written before, and a content comes out as it went in, or without its outer
white space. `Turns` checks this against whole renders, of other contents too; a template that fails (it strips the
reasoning of earlier answers, or moves the system prompt into the last turn) has to be rendered whole at each turn.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

from radixrt.errors import InvalidRequest, UnsupportedModel
from radixrt.text.chat_template import ChatTemplate
from radixrt.text.tokenizer import Tokenizer

Edge = Literal["begin", "end"]

_ROLE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")
_CACHED_TURNS = 1024


class TurnMarkup(NamedTuple):
    """The template's text around the content of one turn, special tokens spelled out."""

    begin: str
    end: str
    trims: bool
    """Whether the template drops the white space around the content."""

    def around(self, content: str) -> str:
        """The whole turn."""
        return self.begin + (content.strip() if self.trims else content) + self.end


class NotPrefixStable(Exception):
    """At these turns the template does not append to what it wrote before; the message says what it does."""


class Turns:
    """The turns of a model with the given chat template (None: it has none, which `absence` explains).

    >>> chatml = "{% for m in messages %}<|im_start|>{{ m.role }}\\n{{ m.content }}<|im_end|>\\n{% endfor %}"
    >>> chatml += "{% if add_generation_prompt %}<|im_start|>assistant\\n{% endif %}"
    >>> turns = Turns(ChatTemplate(chatml, "", ""), {"<|im_start|>": 1, "<|im_end|>": 2})
    >>> turns.prefix_stable, turns.markup((), "user"), turns.end_ids
    (True, TurnMarkup(begin='<|im_start|>user\\n', end='<|im_end|>\\n', trims=False), frozenset({2}))
    """

    prefix_stable: bool
    """Whether turns can be appended one by one. If not, a conversation is rendered whole at each turn."""
    reason: str
    """Why it is not prefix-stable, or why there are no turns at all; else empty."""
    end_ids: frozenset[int]
    """The special token with which the template ends an assistant turn."""

    def __init__(
        self,
        template: ChatTemplate | None,
        special_ids: Mapping[str, int],
        absence: str = "the model has no chat template",
    ) -> None:
        self._template = template
        self._derive: Callable[[ChatTemplate, tuple[str, ...]], TurnMarkup] = _derive
        if template is None:
            self.prefix_stable, self.reason, self.end_ids = False, absence, frozenset()
            return
        if "strftime_now" not in template.source:
            self._derive = lru_cache(maxsize=_CACHED_TURNS)(_derive)
        self.reason = self._instability(template)
        self.prefix_stable = not self.reason
        self.end_ids = _end_ids(template, special_ids)

    @property
    def template(self) -> ChatTemplate:
        """The chat template; raises `InvalidRequest` if the model has none."""
        if self._template is None:
            raise InvalidRequest(
                f"{self.reason}, so there are no roles: write the prompt as text, or use an instruction-tuned model",
                field="role",
            )
        return self._template

    def markup(self, previous: Sequence[str], role: str) -> TurnMarkup:
        """What stands around a turn of `role` that follows turns of the `previous` roles.

        Raises `InvalidRequest` for a role that the template refuses there, `NotPrefixStable` if the turn is not
        appended.
        """
        roles = (*previous, role)
        check_roles(roles)
        if self._template is not None and not self.prefix_stable:
            raise NotPrefixStable(self.reason)
        return self._derive(self.template, roles)

    def visible(self, previous: Sequence[str], role: str, edge: Edge) -> str:
        """The text to show for an edge of a turn. Of a template that is not prefix-stable it is what the edge looks
        like when the turn is the last one, as far as that can be told. Raises `InvalidRequest` like `markup`."""
        try:
            markup = self.markup(previous, role)
        except NotPrefixStable:
            markup = _last_turn(self.template, tuple(previous), role)
        return markup.begin if edge == "begin" else markup.end

    def _instability(self, template: ChatTemplate) -> str:
        """Why the template is not prefix-stable, or nothing."""
        accepted = 0
        for roles in _role_sequences():
            try:
                _render(template, roles, _sentinels(roles))
            except InvalidRequest:
                continue
            accepted += 1
            try:
                self._check(template, roles)
            except NotPrefixStable as error:
                return str(error)
        return "" if accepted else "it refuses every conversation of system, user and assistant turns"

    def _check(self, template: ChatTemplate, roles: tuple[str, ...]) -> None:
        """Compare whole renders with the turns put together; raises `NotPrefixStable`."""
        # From the last to the first: that the turns are refused without the last is then told as what it is.
        turns = [self._derive(template, roles[:count]) for count in range(len(roles), 0, -1)][::-1]
        for content in _CONTENTS:
            try:
                whole = _render(template, roles, [content] * len(roles))
            except InvalidRequest as error:
                raise NotPrefixStable(f"it accepts or refuses a turn by its content ({content!r})") from error
            if whole != "".join(turn.around(content) for turn in turns):
                raise NotPrefixStable(f"it changes a content like {content!r} in the turns {_names(roles)}")
        try:
            opened = self._derive(template, (*roles, "assistant")).begin
        except InvalidRequest:
            return
        sentinels = _sentinels(roles)
        if _render(template, roles, sentinels, add_generation_prompt=True) != (
            _render(template, roles, sentinels) + opened
        ):
            raise NotPrefixStable(
                f"after the turns {_names(roles)} its generation prompt is not what it writes before an assistant turn"
            )


def derive_turns(tokenizer: Tokenizer) -> Turns:
    """The turns of the model that the tokenizer belongs to. Without a chat template that compiles it has none."""
    if tokenizer.chat_template is None:
        return Turns(None, tokenizer.special_ids)
    try:
        template = ChatTemplate(tokenizer.chat_template, tokenizer.bos_text, tokenizer.eos_text)
    except UnsupportedModel as error:
        # Plain completion needs no template, so the model is still of use.
        return Turns(None, tokenizer.special_ids, absence=error.message)
    return Turns(template, tokenizer.special_ids)


def check_roles(roles: Sequence[str]) -> None:
    """Raise `InvalidRequest` for what is no role's name: many a template copies it into its markup as it stands."""
    for role in roles:
        if not _ROLE_NAME.fullmatch(role):
            raise InvalidRequest(
                f"{role!r} is no role: a role is a name of letters, digits, '_', '.' and '-', like 'user'", field="role"
            )


_CONTENTS = ("", "x", " \n x \n\n y\n ", "<think>\nx\n</think>\n\ny", "y", "x\r\n\ty  ")
"""What is tried as content: empty, white space at the edges and inside, and reasoning."""


def _role_sequences() -> Iterator[tuple[str, ...]]:
    """The conversations that are tried: all of up to three turns, and some longer ones."""
    roles = ("system", "user", "assistant")
    for length in (1, 2, 3):
        yield from itertools.product(roles, repeat=length)
    yield ("user", "assistant") * 3
    yield ("system", *("user", "assistant") * 3, "user")


def _derive(template: ChatTemplate, roles: tuple[str, ...]) -> TurnMarkup:
    """The markup of the last of the turns, from renders with and without it."""
    whole = _render(template, roles, _sentinels(roles))
    before = _render_before(template, roles)
    if not whole.startswith(before):
        raise NotPrefixStable(f"a turn changes how earlier ones are written: {_names(roles)}")
    sentinel = _sentinels(roles)[-1]
    begin, found, end = whole[len(before) :].partition(sentinel)
    if not found:
        raise NotPrefixStable(f"the content of the last turn does not come out: {_names(roles)}")
    padded = f" \n{sentinel}\n "
    rest = _render(template, roles, [*_sentinels(roles)[:-1], padded])[len(before) :]
    for trims in (False, True):
        markup = TurnMarkup(begin, end, trims)
        if rest == markup.around(padded):
            return markup
    raise NotPrefixStable(f"it changes the content of the last turn: {_names(roles)}")


def _render_before(template: ChatTemplate, roles: tuple[str, ...]) -> str:
    """The turns but for the last."""
    before = roles[:-1]
    if not before:
        return ""
    try:
        return _render(template, before, _sentinels(before))
    except InvalidRequest as error:
        raise NotPrefixStable(f"it accepts the turns {_names(roles)}, but not without the last of them") from error


def _last_turn(template: ChatTemplate, previous: tuple[str, ...], role: str) -> TurnMarkup:
    """What may be shown as the markup of a turn while it is the last."""
    roles = (*previous, role)
    sentinels = _sentinels(roles)
    head, found, end = _render(template, roles, sentinels).partition(sentinels[-1])
    if not previous:
        return TurnMarkup(head, end, trims=False) if found else TurnMarkup("", "", trims=False)
    if role == "assistant":
        head = _render(template, previous, sentinels[:-1], add_generation_prompt=True)
    elif not found:
        return TurnMarkup("", "", trims=False)
    shown, fresh = (text.rpartition(sentinels[-2])[2] for text in (_render(template, previous, sentinels[:-1]), head))
    return TurnMarkup(fresh.removeprefix(shown), end, trims=False)


def _end_ids(template: ChatTemplate, special_ids: Mapping[str, int]) -> frozenset[int]:
    """The first special token after the content of an assistant turn."""
    for roles in (("user", "assistant"), ("assistant",)):
        sentinels = _sentinels(roles)
        try:
            _, _, end = _render(template, roles, sentinels).partition(sentinels[-1])
        except InvalidRequest:
            continue
        places = {end.find(text): text for text in sorted(special_ids, key=len) if text and text in end}
        if places:
            return frozenset({special_ids[places[min(places)]]})
    return frozenset()


def _render(
    template: ChatTemplate, roles: Sequence[str], contents: Sequence[str], *, add_generation_prompt: bool = False
) -> str:
    messages = [{"role": role, "content": content} for role, content in zip(roles, contents, strict=True)]
    return template.render(messages, add_generation_prompt)


def _sentinels(roles: Sequence[str]) -> list[str]:
    """Contents that no template writes by itself (private-use characters), and that none mistakes for another."""
    return [f"\ue000{i}\ue001" for i in range(len(roles))]


def _names(roles: Sequence[str]) -> str:
    return ", ".join(roles)
