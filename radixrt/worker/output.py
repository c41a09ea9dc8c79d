"""What a request has generated, seen as text: stops, ends of turn, the length limit, and what may be shown.

The worker knows each token's bytes, so all this is decided in the step that produced the token.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from radixrt.protocol.events import FinishReason
from radixrt.protocol.ids import IdArray, pack_ids
from radixrt.protocol.sampling import SamplingParams
from radixrt.text.stops import StopMatch, StopMatcher


class Vocabulary(Protocol):
    """What the worker knows about tokens (`text.tokenizer.Tokenizer` is one)."""

    @property
    def vocabulary_size(self) -> int: ...

    def token_bytes(self, token: int) -> bytes: ...

    def encode_bytes(self, data: bytes) -> IdArray: ...


@dataclass(frozen=True, slots=True)
class End:
    """Why a generation is over, and which of its tokens the context keeps (see `events.Finished`)."""

    reason: FinishReason
    matched: int | str | None
    kept: int
    tail: bytes


class Output:
    """One request's output. `accept` takes its tokens one by one."""

    def __init__(
        self, params: SamplingParams, end_ids: frozenset[int], room: int, vocabulary: Vocabulary, *, healed: int = 0
    ) -> None:
        """`room`: most tokens that still fit; `end_ids`: tokens that end the generation; `healed`: how many bytes of
        the first token are the prompt's. They are neither shown nor searched for stops.

        Raises `InvalidRequest` for stop strings or patterns that are wrong.
        """
        self._healed = healed
        self._max_tokens = min(room, params.max_tokens)
        # A context that is full ends a generation, whatever `min_tokens` asks for.
        self._min_tokens = min(params.min_tokens, self._max_tokens)
        self.end_ids = end_ids
        self._vocabulary = vocabulary
        self._stops = StopMatcher(params.stop, params.stop_regex)
        self._searched_from = healed
        """Byte at which the search for stops began: they are not looked for before `min_tokens`."""
        self._tokens: list[int] = []
        self._ends: list[int] = []
        """Byte at which each token's text ends."""

    def __len__(self) -> int:
        """Tokens generated, an end of turn included."""
        return len(self._tokens)

    @property
    def holds_back(self) -> bool:
        """Whether text is held back because it may become a stop."""
        return self._stops.held > 0

    def accept(self, token: int, *, finished: bool = False) -> tuple[bytes, End | None]:
        """Text that may be shown now, and the end if this token brought it.

        `finished`: the constraint admits nothing behind this token, whatever `min_tokens` asks for.
        """
        start = self._ends[-1] if self._ends else 0
        self._tokens.append(token)
        if token in self.end_ids:
            self._ends.append(start)
            return self._conclude(End("stop", token, kept=len(self) - 1, tail=b""))
        data = self._vocabulary.token_bytes(token)
        self._ends.append(start + len(data))
        data = data[max(self._healed - start, 0) :]
        count = len(self._tokens)
        if count < self._min_tokens and not finished:
            self._searched_from = self._ends[-1]
            return data, None
        step = self._stops.feed(data)
        if step.match is not None:
            return step.released, self._cut(step.match)
        if finished or count == self._max_tokens:
            text, end = self._conclude(End("stop" if finished else "length", None, kept=count, tail=b""))
            return step.released + text, end
        return step.released, None

    def _conclude(self, end: End) -> tuple[bytes, End]:
        """What was held back, and the end; a stop that only waited for a better one to fail comes first."""
        step = self._stops.finish()
        return step.released, end if step.match is None else self._cut(step.match)

    def _cut(self, match: StopMatch) -> End:
        """The context keeps the whole tokens before the stop, and a new tokenisation of the one it cuts."""
        cut = self._searched_from + match.start
        kept = sum(1 for end in self._ends if end <= cut)
        rest = cut - (self._ends[kept - 1] if kept else 0)
        tail = self._vocabulary.token_bytes(self._tokens[kept])[:rest]
        return End("stop", match.stop, kept, pack_ids(self._vocabulary.encode_bytes(tail)) if tail else b"")
