"""What the loader asks of a model's files, whatever their format."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from torch import Tensor

from radixrt.kernels.interface import RawWeight


class WeightSource(Protocol):
    """Tensors by their Hugging Face names, in the Hugging Face order of rows."""

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Of every tensor there is; what no forward pass reads is left out."""
        ...

    def matrix(self, name: str) -> RawWeight:
        """A matrix, in the format of the file. Raises `UnsupportedModel` for a format that cannot be read."""
        ...

    def vector(self, name: str) -> Tensor:
        """A norm's weight or a bias, as float32. Raises `UnsupportedModel` for a format that cannot be read."""
        ...
