from __future__ import annotations

from typing import Any

import pytest

import radixrt as rx


@pytest.mark.parametrize(
    ("call", "instead"),
    [
        (lambda: rx.VertexAI("gemini"), "LiteLLM"),
        (lambda: rx.image("a.png"), "text only"),
        (lambda: rx.video("a.mp4", 8), "text only"),
    ],
)
def test_what_is_not_served_says_so_and_what_to_use(call: Any, instead: str) -> None:
    with pytest.raises(rx.NotSupported, match=instead):
        call()
