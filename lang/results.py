"""What becomes of one `gen`: its text as it arrives, then its end or its failure.

Written on the event loop's thread only, read from any.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from radixrt.errors import GenerationFailed, InvalidOutput, error_from_wire
from radixrt.lang.signals import Signal
from radixrt.lang.typed import TypedOutput
from radixrt.protocol.events import Failed, Finished, Piece, TextEvent, TokenLogprob
from radixrt.protocol.packing import ID_BYTES, unpack


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a generation failed, and where in its program."""

    program: str
    branch: str
    node: str
    cause: BaseException

    def error(self) -> GenerationFailed:
        """The failure as an exception: a new one for each reader, since a raised exception grows a traceback."""
        return GenerationFailed(self.program, self.branch, self.node, self.cause)


@dataclass(slots=True)
class Choice:
    """One of a generation's `n` choices."""

    pieces: list[str] = field(default_factory=list)
    """Text in the order it came: whole characters, nothing that a stop string may still take back."""
    ids: bytearray = field(default_factory=bytearray)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    token_texts: dict[int, str] = field(default_factory=dict)
    """What the tokens in `logprobs` are written as, if that was asked for."""
    end: Finished | None = None

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    @property
    def context_ids(self) -> bytes:
        """The packed ids that stand for `text` in a context, once the choice has ended."""
        return bytes(self.ids) if self.end is None else bytes(self.ids[: self.end.kept * ID_BYTES]) + self.end.tail


@dataclass(slots=True, eq=False)
class Generation:
    """A `gen` that was recorded. `program`, `branch` and `node` say where, for messages."""

    program: str
    branch: str
    node: str
    n: int = 1
    with_logprobs: bool = False
    output: TypedOutput | None = None
    """How a value is made of a choice's text. None: the value is the text."""
    choices: list[Choice] = field(init=False)
    failure: Failure | None = None
    complete: bool = False
    """Every choice has ended, or one has failed."""
    completed: Signal = field(default_factory=Signal)
    progressed: Signal = field(default_factory=Signal)
    """Notified at each piece of text too, for those who stream."""

    def __post_init__(self) -> None:
        self.choices = [Choice() for _ in range(self.n)]

    def receive(self, event: TextEvent) -> None:
        """Take in an event. What comes after the generation is complete has no reader any more."""
        if self.complete:
            return
        match event:
            case Piece():
                self._extend(self.choices[event.choice], event)
            case Finished():
                self.choices[event.choice].end = event
                if all(choice.end is not None for choice in self.choices):
                    self._end()
            case Failed():
                self.fail(self.failed_with(error_from_wire(event.kind, event.message, event.field)))

    def failed_with(self, cause: BaseException) -> Failure:
        """`cause` as a failure of this generation."""
        return Failure(self.program, self.branch, self.node, cause)

    def fail(self, failure: Failure) -> None:
        """End in `failure`: this generation's own, or that of one which it continues."""
        if not self.complete:
            self.failure = failure
            self._end()

    def value(self) -> Any:
        """The text, or what `output` makes of it; with `n` > 1 a list of them. To be read when complete.

        Raises the failure, and a `GenerationFailed` for text that is no value of the type.
        """
        self.raise_failure()
        values = [self._value(choice) for choice in self.choices]
        return values if self.n > 1 else values[0]

    def meta_info(self, choice: Choice) -> dict[str, Any]:
        """What is known of one of the choices besides its text; while it runs, only how far it has come.

        `finish_reason` is "stop", "length" or (running) None; `matched_stop` is the text or token id that ended it.
        `speculated` is there, and True, if the text took no call of a chat API of its own.
        If log-probabilities were asked for: `output_token_logprobs`, a tuple `(logprob, token id, text)` a token, and
        `output_top_logprobs`, a list of such tuples a token, likeliest first. The texts are None unless asked for.
        With `logprob_start_len` also, in the end, `input_token_logprobs`: the same of the whole context's tokens from
        that position on, whatever put them there; with None in place of a log-probability where nothing stands before.
        """
        end = choice.end
        if end is None:
            meta: dict[str, Any] = {"completion_tokens": len(choice.ids) // ID_BYTES, "finish_reason": None}
        else:
            meta = {
                "prompt_tokens": end.usage.prompt_tokens,
                "cached_tokens": end.usage.cached_tokens,
                "completion_tokens": end.usage.completion_tokens,
                "finish_reason": end.reason,
                "matched_stop": end.matched,
                "time_to_first_token": end.time_to_first_token,
                "time": end.time,
            }
            if end.speculated:
                meta["speculated"] = True
        if self.with_logprobs:
            text = choice.token_texts.get
            meta["output_token_logprobs"] = [(one.logprob, one.token, text(one.token)) for one in choice.logprobs]
            meta["output_top_logprobs"] = [
                [(value, token, text(token)) for token, value in one.top] for one in choice.logprobs
            ]
        # Choice 0 scores the prompt for all.
        first = self.choices[0].end
        if first is not None and first.prompt is not None:
            pairs = zip(first.prompt.logprobs, unpack(first.prompt.ids), strict=True)
            meta["input_token_logprobs"] = [(value, token, first.token_texts.get(token)) for value, token in pairs]
        return meta

    def meta_infos(self) -> dict[str, Any] | list[dict[str, Any]]:
        """`meta_info`, or (`n` > 1) one a choice. Raises the failure. To be read when complete."""
        self.raise_failure()
        metas = [self.meta_info(choice) for choice in self.choices]
        return metas if self.n > 1 else metas[0]

    def raise_failure(self) -> None:
        """Raise `GenerationFailed` if the generation failed."""
        if self.failure is not None:
            raise self.failure.error() from self.failure.cause

    def _value(self, choice: Choice) -> Any:
        if self.output is None:
            return choice.text
        try:
            return self.output.value(choice.text)
        except InvalidOutput as error:
            if choice.end is not None and choice.end.reason == "length":
                error = InvalidOutput(f"max_tokens cut it: {error}", field="max_tokens")
            raise self.failed_with(error).error() from error

    def _extend(self, choice: Choice, piece: Piece) -> None:
        choice.ids += piece.ids
        choice.logprobs += piece.logprobs
        choice.token_texts |= piece.token_texts
        if piece.text:
            choice.pieces.append(piece.text)
            self.progressed.notify()

    def _end(self) -> None:
        self.complete = True
        self.completed.notify()
        self.progressed.notify()
