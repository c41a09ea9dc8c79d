"""Making a call and gathering what comes of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from radixrt.client.chat_apis.ahead import Ahead
from radixrt.client.chat_apis.api import Call, ChatApi, Delta, End
from radixrt.client.chat_apis.stops import TextCutter
from radixrt.client.chat_apis.tally import Tally
from radixrt.errors import ApiUnavailable, RadixError
from radixrt.protocol.events import Usage

NO_USAGE = Usage(0, 0, 0)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a generation."""

    text: str
    """Of choice 0."""
    ends: Sequence[End]
    """One a choice."""
    usage: Usage = NO_USAGE
    """Of all choices together, as the API counts; zeros where it does not say."""
    time_to_first_token: float = 0.0
    """Seconds from the call to its first text..."""
    time: float = 0.0
    """...and to its end."""
    ahead: Ahead | None = None
    """What was written past the text."""


class Caller:
    """Makes calls of one API. `name` is what messages call it; `tally` counts the calls."""

    def __init__(self, name: str, api: ChatApi, tally: Tally) -> None:
        self.name = name
        self.api = api
        self.tally = tally

    async def call(self, call: Call, tell: Callable[[Delta], None]) -> Outcome:
        """Make a call; `tell` gets each choice's text as it comes, cut before its stop strings.

        Raises as `ChatApi.stream`, and `ApiUnavailable` for a reply of another form than the API's.
        """
        try:
            return await self._call(call, tell)
        except RadixError:
            raise
        except (LookupError, TypeError, AttributeError, ValueError) as error:
            what = f"{type(error).__name__}: {error}"
            raise ApiUnavailable(f"{self.name} sent a reply that is not understood ({what})") from error

    async def _call(self, call: Call, tell: Callable[[Delta], None]) -> Outcome:
        sampling = call.sampling
        # Where a stop string may end the text depends on `min_tokens`, and only the server counts tokens.
        stops = sampling.stop if sampling.min_tokens <= 1 else ()
        cutters = [TextCutter(stops) for _ in range(sampling.n)]
        ends: dict[int, End] = {}
        text, usage = "", NO_USAGE
        started = time.monotonic()
        first: float | None = None

        def show(delta: Delta) -> None:
            nonlocal text
            tell(delta)
            text += delta.text if delta.choice == 0 else ""

        async with aclosing(self.api.stream(call)) as events:
            async for event in events:
                if isinstance(event, Usage):
                    usage = event
                    continue
                choice = event.choice
                if choice in ends or not 0 <= choice < sampling.n:
                    continue
                cutter = cutters[choice]
                if isinstance(event, Delta):
                    first = first or time.monotonic()
                    show(event._replace(text=cutter.feed(event.text)))
                else:
                    show(Delta(choice, cutter.finish()))
                    ends[choice] = event
                if cutter.matched is not None:
                    ends[choice] = End(choice, "stop", cutter.matched)
                    if isinstance(event, Delta) and len(ends) == sampling.n:
                        break  # Nothing that would still come is wanted: it need not be paid for.
        self.tally.calls += 1
        self.tally.prompt_tokens += usage.prompt_tokens
        self.tally.completion_tokens += usage.completion_tokens
        if len(ends) < sampling.n:
            raise ApiUnavailable(f"{self.name} broke its reply off: the stream ended before the text did")
        ended = time.monotonic()
        in_order = [ends[choice] for choice in range(sampling.n)]
        return Outcome(text, in_order, usage, (first or ended) - started, ended - started)
