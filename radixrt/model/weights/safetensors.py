"""Weights from a Hugging Face folder: one safetensors file, or shards with an index."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from radixrt.errors import UnsupportedModel
from radixrt.kernels.interface import RawWeight
from radixrt.model.weights.raw import raw_weight

_CPU = torch.device("cpu")
_FORMATS = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}
_SINGLE = "model.safetensors"
_INDEX = "model.safetensors.index.json"


class SafetensorsWeights:
    """A `WeightSource` over memory-mapped files; dtypes stay as they are.

    On a GPU each tensor goes from the file's memory map straight to the device.
    """

    def __init__(self, folder: Path, device: torch.device = _CPU) -> None:
        self._file_of: dict[str, Any] = {}
        self._shapes: dict[str, tuple[int, ...]] = {}
        for path in _files(folder):
            try:
                file = safe_open(path, framework="pt", device=str(device))
            except (OSError, SafetensorError) as error:
                raise UnsupportedModel(f"cannot read {path}: {error}") from error
            for name in file.keys():  # noqa: SIM118 (the handle is no mapping)
                # Old checkpoints store the frequencies, which follow from the configuration.
                if not name.endswith("rotary_emb.inv_freq"):
                    self._file_of[name] = file
                    self._shapes[name] = tuple(file.get_slice(name).get_shape())

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        return self._shapes

    def matrix(self, name: str) -> RawWeight:
        fmt, data = self._read(name)
        return raw_weight(fmt, data, (data.shape[0], data.shape[1]))

    def vector(self, name: str) -> Tensor:
        return self._read(name)[1].float()

    def _read(self, name: str) -> tuple[str, Tensor]:
        file = self._file_of[name]
        stored = file.get_slice(name).get_dtype()
        if stored not in _FORMATS:
            raise UnsupportedModel(f"tensor {name} is stored as {stored}; known are {', '.join(_FORMATS)}")
        return _FORMATS[stored], file.get_tensor(name)


def _files(folder: Path) -> list[Path]:
    index = folder / _INDEX
    if not index.exists():
        if not (folder / _SINGLE).exists():
            raise UnsupportedModel(f"{folder} has neither {_SINGLE} nor {_INDEX}; only safetensors and GGUF are read")
        return [folder / _SINGLE]
    try:
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UnsupportedModel(f"cannot read the index {index}: {error!r}") from error
    for name in names:
        if not isinstance(name, str) or Path(name).name != name:
            raise UnsupportedModel(f"the index {index} names {name!r}; shards must lie beside it")
    return [folder / name for name in names]
