"""How likely a model finds given text: the log-probabilities of a prompt's own tokens, or of options behind it.

For whoever can open a program (`Backend.open_program` is such a function); all of it runs on the event loop. `unpack`
makes token ids of packed ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeAlias

from radixrt.client.backend import Session
from radixrt.client.results import OptionScore, OptionScores, PromptScores, TokenIds, TokenScores
from radixrt.errors import error_from_wire
from radixrt.protocol.events import Failed, ScoredTokens, Scores, TextEvent
from radixrt.protocol.messages import TreeNode
from radixrt.protocol.options import options_of
from radixrt.protocol.segments import Segment

OpenProgram: TypeAlias = Callable[[Callable[[TextEvent], None]], Session]
"""Opens a program whose events go to the function given."""
Unpack: TypeAlias = Callable[[bytes], TokenIds]


async def score_segments(
    open_program: OpenProgram, segments: Sequence[Segment], start: int, unpack: Unpack
) -> PromptScores:
    """The log-probabilities of a prompt's own tokens from position `start` on.

    Raises `InvalidRequest` for a wrong prompt, `PromptTooLong`, `Aborted` or `WorkerUnavailable`.
    """
    scores = await _scores(open_program, TreeNode(id=0, parent=None, segments=tuple(segments), score=start))
    return PromptScores(_tokens(scores.scored[0], unpack), start, scores.usage)


async def score_options(
    open_program: OpenProgram,
    segments: Sequence[Segment],
    choices: Sequence[str],
    unpack: Unpack,
    *,
    unconditional: bool = False,
) -> OptionScores:
    """The log-probabilities of each option behind a prompt; with `unconditional`, also without it.

    Raises `InvalidRequest` for a wrong prompt or wrong options (the field is `choices`), `PromptTooLong`, `Aborted` or
    `WorkerUnavailable`.
    """
    options = options_of(choices, unconditional=unconditional)
    scores = await _scores(open_program, TreeNode(id=0, parent=None, segments=tuple(segments), select=options))
    bare = [_tokens(scored, unpack) for scored in scores.unconditional]
    alone = bare if unconditional else [None] * len(options.texts)
    by_text = {
        text: OptionScore(text, _tokens(scored, unpack), without)
        for text, scored, without in zip(options.texts, scores.scored, alone, strict=True)
    }
    return OptionScores(tuple(by_text[text] for text in choices), scores.prefix_tokens, scores.usage)


async def _scores(open_program: OpenProgram, node: TreeNode) -> Scores:
    """What becomes of the one node of a program of its own; to cancel this is to abort it."""
    events: asyncio.Queue[TextEvent] = asyncio.Queue()
    session = open_program(events.put_nowait)
    try:
        session.submit([node])
        match await events.get():
            case Scores() as scores:
                return scores
            case Failed(kind=kind, message=message, field=field):
                raise error_from_wire(kind, message, field)
            case event:
                raise TypeError(f"a scored node ended in {event!r}")
    finally:
        session.close()


def _tokens(scored: ScoredTokens, unpack: Unpack) -> TokenScores:
    return TokenScores(unpack(scored.ids), scored.logprobs)
