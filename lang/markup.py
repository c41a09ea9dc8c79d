"""Chat markup that an author wrote by hand: special tokens in SGLang, plain text here, which is said once.

Inside turns nothing is said: whoever uses roles has no need of markup, so what looks like it is data, and is to stay
text.
"""

from __future__ import annotations

import itertools
import warnings

MARKS = (
    "<|im_start|>",
    "<|im_end|>",
    "<|start_header_id|>",
    "<|begin_of_text|>",
    "<|eot_id|>",
    "[INST]",
    "<start_of_turn>",
    "<|user|>",
    "<|assistant|>",
    "<｜User｜>",
)
"""Of the usual templates: ChatML, Llama 3 and 2, Mistral, Gemma, Phi, GLM, DeepSeek."""

_occasions = itertools.count()


def note_markup(text: str, place: str) -> None:
    """Warn if a constant outside any turn has markup, the first time in this process. `place`: who appended it."""
    mark = next((mark for mark in MARKS if mark in text), None)
    if mark is not None and next(_occasions) == 0:
        warnings.warn(
            f"{place}: the text {mark!r} stays text, it does not become a special token. Write turns with "
            "system(...), user(...) and assistant(...), or wrap a rendered prompt in raw(...)",
            stacklevel=4,  # whoever wrote `s += ...`
        )
