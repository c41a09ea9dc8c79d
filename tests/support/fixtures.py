"""Session fixtures that several test folders share; `tests/conftest.py` loads this module as a plugin."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.tiny_models import make_tiny_model

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

    from radixrt.client.runtime import Runtime
    from radixrt.text.model_files import ModelFiles


@pytest.fixture(scope="session")
def tiny_llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a tiny random Llama."""
    return make_tiny_model(tmp_path_factory.mktemp("tiny-llama"), "llama")


@pytest.fixture(scope="session")
def tiny_mistral(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a tiny random Mistral with a sliding window of 24 tokens."""
    return make_tiny_model(tmp_path_factory.mktemp("tiny-mistral"), "mistral")


@pytest.fixture(scope="session")
def tiny_qwen2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a tiny random Qwen2: biases on q, k and v; tied embeddings."""
    return make_tiny_model(tmp_path_factory.mktemp("tiny-qwen2"), "qwen2")


@pytest.fixture(scope="session")
def tiny_qwen3(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a tiny random Qwen3: norms on q and k, heads wider than hidden / heads; tied embeddings."""
    return make_tiny_model(tmp_path_factory.mktemp("tiny-qwen3"), "qwen3")


@pytest.fixture(scope="session")
def smollm2_files() -> ModelFiles:
    """The default model's files, fetched on first use."""
    from radixrt.text.model_files import find_model

    return find_model("smollm2-135m")


@pytest.fixture(scope="session")
def smollm2_oracle(smollm2_files: ModelFiles) -> PreTrainedModel:
    """The default model as transformers reads it from the GGUF file, in float32."""
    import torch
    from transformers import AutoModelForCausalLM

    assert smollm2_files.gguf is not None
    path = smollm2_files.gguf
    model = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32)
    return model.eval()


@pytest.fixture(scope="session")
def smollm2_tokenizer(smollm2_files: ModelFiles) -> PreTrainedTokenizerFast:
    """The default model's tokenizer as transformers reads it from the GGUF file."""
    from transformers import AutoTokenizer

    assert smollm2_files.gguf is not None
    path = smollm2_files.gguf
    tokenizer: PreTrainedTokenizerFast = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    return tokenizer


@pytest.fixture(scope="session")
def smollm2_folder(
    smollm2_oracle: PreTrainedModel,
    smollm2_tokenizer: PreTrainedTokenizerFast,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """The same weights, and the same tokenizer, as a Hugging Face folder with safetensors."""
    from transformers import LlamaForCausalLM

    # transformers does not save a model that came from a GGUF file, expanded as it is: a plain one takes its weights.
    config = copy.deepcopy(smollm2_oracle.config)
    del config.quantization_config
    plain = LlamaForCausalLM(config)
    plain.load_state_dict(smollm2_oracle.state_dict(), assign=True)
    folder = tmp_path_factory.mktemp("smollm2-135m")
    plain.save_pretrained(folder)
    smollm2_tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def smollm2_runtime() -> Iterator[Runtime]:
    """A worker with the default model, for all who do not mind what is in its cache, or flush it."""
    from radixrt.client.runtime import Runtime

    with Runtime("smollm2-135m", context_length=2048) as runtime:
        yield runtime
