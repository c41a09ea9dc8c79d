"""The machine's own kernels choose what float32 chooses, where that is decided, and make as much of a text."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.agreement import TeacherForced, compare, greedy_texts
from radixrt.kernels.registry import available_backends
from radixrt.text.model_files import find_model
from radixrt.text.tokenizer import load_tokenizer
from tests.support.prompts import PROMPTS

MODEL = "smollm2-135m"
SETTING = Path(__file__).parents[2] / "examples" / "settings"

NATIVE = any(name.startswith("cpu:") for name in available_backends())
pytestmark = pytest.mark.skipif(not NATIVE, reason="the native kernels are not built")


@pytest.mark.parametrize(
    ("prompts", "tokens"), [(PROMPTS[:4], 16), pytest.param(PROMPTS, 64, marks=pytest.mark.long)], ids=["few", "all"]
)
@pytest.mark.parametrize("activations", ["auto", pytest.param("int8", marks=pytest.mark.long)])
def test_the_likeliest_token_is_the_float32_reference_s(prompts: list[str], tokens: int, activations: str) -> None:
    files = find_model(MODEL)
    tokenizer = load_tokenizer(files)
    texts = greedy_texts(MODEL, [tokenizer.encode(prompt).tolist() for prompt in prompts], tokens)
    oracle = TeacherForced(files, "reference", "float32")
    native = TeacherForced(files, "cpu", "bfloat16", activations)
    reference = [oracle.choices(text) for text in texts]
    # What the oracle would choose is what it chose: the comparison is with the text itself.
    assert [logits.argmax(-1).tolist() for logits in reference] == [text.output for text in texts]
    found = compare(reference, [native.choices(text).argmax(-1) for text in texts])
    assert found.positions == len(prompts) * tokens
    assert found.decided > 0.3 * found.positions
    assert found.decided_equal == found.decided
    assert found.equal >= 0.95 * found.positions


@pytest.mark.parametrize(("activations", "bound"), [("auto", 0.01), pytest.param("int8", 0.02, marks=pytest.mark.long)])
def test_perplexity_is_near_the_float32_reference_s(activations: str, bound: float) -> None:
    files = find_model(MODEL)
    text = next(iter(sorted(SETTING.iterdir()))).read_text()
    ids = load_tokenizer(files).encode(text)[:600].tolist()
    expected = TeacherForced(files, "reference", "float32").perplexity(ids)
    found = TeacherForced(files, "cpu", "bfloat16", activations).perplexity(ids)
    assert len(ids) > 400
    assert found == pytest.approx(expected, rel=bound)
