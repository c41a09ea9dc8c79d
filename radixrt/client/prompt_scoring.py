"""The scores of a prompt's own tokens, for who has the tokenizer: then it is known at once which tokens there are."""

from __future__ import annotations

from collections.abc import Sequence

from radixrt.client.results import PromptScores
from radixrt.client.scoring import OpenProgram, score_segments
from radixrt.errors import InvalidRequest
from radixrt.protocol.ids import pack_ids, unpack_ids
from radixrt.protocol.segments import Ids, Segment
from radixrt.text.frontend import Frontend


async def score_prompt(
    open_program: OpenProgram, frontend: Frontend, segments: Sequence[Segment], start: int = 0
) -> PromptScores:
    """The log-probabilities of a prompt's own tokens from position `start` on.

    Raises as `score_segments`, and `InvalidRequest` for a `start` that the prompt does not have (its length is allowed:
    no tokens).
    """
    ids = frontend.encode_prompt(segments)
    if isinstance(start, bool) or not isinstance(start, int) or not 0 <= start <= len(ids):
        raise InvalidRequest(f"start is {start!r}; the prompt has {len(ids)} tokens", field="start")
    return await score_segments(open_program, [Ids(pack_ids(ids))], start, unpack_ids)
