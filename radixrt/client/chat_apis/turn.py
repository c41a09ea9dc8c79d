"""Having an API write more of a turn than one generation of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec

from radixrt.client.chat_apis.ahead import Ahead, Taken, needs_its_own_call
from radixrt.client.chat_apis.api import Call, Delta
from radixrt.client.chat_apis.caller import NO_USAGE, Caller, Outcome
from radixrt.client.conversation import Conversation
from radixrt.errors import NotSupported, TurnNotFollowed
from radixrt.protocol.events import Usage
from radixrt.protocol.messages import TreeNode
from radixrt.protocol.sampling import SamplingParams
from radixrt.protocol.segments import Text

TRIES = 3
"""How often an API that cannot continue a turn is asked for it, until it writes it as the program does."""
_SHOWN = 80
"""Characters of a text in messages."""


@dataclass(frozen=True, slots=True)
class _Try:
    taken: Taken
    matched: int
    """How many of the generations that follow are written too."""


async def write_turn(
    caller: Caller,
    conversation: Conversation,
    sampling: SamplingParams,
    beyond: int,
    following: Sequence[TreeNode],
) -> Outcome:
    """Make a generation by a call that may write `beyond` more tokens; what it wrote past it is `Outcome.ahead`.

    An API that cannot continue a turn writes it from its beginning, and the text that the turn has must come again. Of
    several tries the one counts that goes with most of the generations `following` in the turn.

    Raises as `Caller.call`, `TurnNotFollowed`, and `NotSupported` for a generation that cannot be made so.
    """
    if field := needs_its_own_call(sampling):
        raise NotSupported(f"{caller.name} takes no {field} behind other text of a turn", field=field)
    continues = caller.api.continues_turns
    opening = "" if continues else conversation.text
    asked = conversation if continues else replace(conversation, text="")
    limits = msgspec.structs.replace(sampling, max_tokens=sampling.max_tokens + beyond, stop=())
    usage, first, total = NO_USAGE, 0.0, 0.0
    best: _Try | None = None
    written = ""
    for _ in range(1 if continues else TRIES):
        outcome = await caller.call(Call(asked, limits), _tell_nobody)
        written = outcome.text
        usage, first, total = _sum(usage, outcome.usage), total + outcome.time_to_first_token, total + outcome.time
        begun = _behind_opening(Ahead(written, outcome.ends[0].reason == "stop", sampling), opening)
        if begun is None:
            continue
        taken = begun.cut(sampling)
        matched = _matched(taken.rest, following)
        if best is None or matched > best.matched:
            best = _Try(taken, matched)
        if matched == len(following):
            break
    if best is None:
        raise TurnNotFollowed(
            f"{caller.name} did not write the turn as the program does: it should begin with {opening[:_SHOWN]!r}, and "
            f"begins with {written[:_SHOWN]!r}"
        )
    taken = best.taken
    return Outcome(taken.text, [taken.end], usage, first, total, taken.rest)


def _behind_opening(written: Ahead, opening: str) -> Ahead | None:
    """What was written behind the text that the turn has. Chat APIs strip the white space that a turn begins with."""
    if not opening.strip():
        return written
    return replace(written, text=written.text.lstrip()).behind(opening.lstrip())


def _matched(rest: Ahead, following: Sequence[TreeNode]) -> int:
    """How many of the generations are written in `rest`, from the first on."""
    for count, node in enumerate(following):
        constants = "".join(segment.text for segment in node.segments if isinstance(segment, Text))
        ahead = rest.behind(constants)
        taken = ahead.take(node.sampling) if ahead is not None and node.sampling is not None else None
        if taken is None:
            return count
        rest = taken.rest
    return len(following)


def _sum(one: Usage, other: Usage) -> Usage:
    return Usage(
        one.prompt_tokens + other.prompt_tokens,
        one.cached_tokens + other.cached_tokens,
        one.completion_tokens + other.completion_tokens,
    )


def _tell_nobody(delta: Delta) -> None:
    """What comes is matched when all of it is there."""
