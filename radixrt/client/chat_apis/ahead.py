"""API speculative execution (SGLang, arXiv 2312.07104, section 3.3): using what an API wrote past the end of a `gen`.

A turn such as `"Name: " + gen("name", stop="\\n") + "\\nJob: " + gen("job", stop="\\n")` takes one call. Its stop
strings are not sent, so that the API writes on; what stands behind the first stop is kept, and the constants and
generations that follow are matched against it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import msgspec

from radixrt.client.chat_apis.api import End
from radixrt.client.chat_apis.stops import TextCutter
from radixrt.protocol.events import FinishReason
from radixrt.protocol.sampling import SamplingParams


@dataclass(frozen=True, slots=True)
class Ahead:
    """Text that an API has written past a context, in the same turn."""

    text: str
    whole: bool
    """Whether the turn ends there; else it was cut."""
    sampling: SamplingParams
    """How it was sampled."""

    def behind(self, constant: str) -> Ahead | None:
        """What is left behind a constant of the program; None if something else was written there."""
        if not self.text.startswith(constant):
            return None
        return replace(self, text=self.text[len(constant) :])

    def take(self, sampling: SamplingParams) -> Taken | None:
        """A generation from the beginning of what was written; None where a call of its own is needed.

        That is so if its end was not written, or if it is to be sampled in another way.
        """
        if needs_its_own_call(sampling) or _drawn(sampling) != _drawn(self.sampling):
            return None
        taken = self.cut(sampling)
        return taken if self.whole or taken.end.matched is not None else None

    def cut(self, sampling: SamplingParams) -> Taken:
        """What was written, as the text of the generation that it was written for, up to its stop string."""
        cutter = TextCutter(sampling.stop)
        text = cutter.feed(self.text)
        if cutter.matched is None:
            text += cutter.finish()
        reason: FinishReason = "length" if cutter.matched is None and not self.whole else "stop"
        return Taken(text, End(0, reason, cutter.matched), replace(self, text=self.text[len(text) :]))


@dataclass(frozen=True, slots=True)
class Taken:
    """The text of a generation, how it ended, and what was written past it."""

    text: str
    end: End
    rest: Ahead


def needs_its_own_call(sampling: SamplingParams) -> str | None:
    """The parameter for which a generation takes a call that writes nothing else; None: there is none."""
    asked_for = {
        "n": sampling.n > 1,
        "constraint": sampling.constraint is not None,
        "logprobs": sampling.logprobs is not None,
        # Only the server knows how many tokens a text has.
        "min_tokens": sampling.min_tokens > 1,
    }
    return next((name for name, is_asked_for in asked_for.items() if is_asked_for), None)


def _drawn(sampling: SamplingParams) -> SamplingParams:
    """The parameters by which tokens are drawn: all but those that end a text."""
    return msgspec.structs.replace(sampling, max_tokens=1, stop=())
