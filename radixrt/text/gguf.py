"""The GGUF reader: a model's metadata as Python values, its tensors as views of the file.

Written against ggml's docs/gguf.md, versions 2 and 3, little-endian. The `gguf` package gives the tables of types but
not the reader: its own makes numpy arrays of every string's parts, which takes seconds for a vocabulary.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from numpy.typing import NDArray

from radixrt.errors import UnsupportedModel

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_DEFAULT_ALIGNMENT = 32
_MAX_DIMENSIONS = 4

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""`struct` code of each scalar value type."""
_STRING = 8
_ARRAY = 9
_LENGTH = struct.Struct("<Q")


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """A tensor as it lies in the file."""

    name: str
    format: str
    """ggml's name of the element type: "F32", "Q4_1", ..."""
    shape: tuple[int, ...]
    """Outermost dimension first, as in torch: (out, in) for a matrix."""
    data: NDArray[np.uint8]
    """Read-only view of the memory-mapped file, uint8 [*shape[:-1], bytes of a row]."""


class GgufFile:
    """An open GGUF file. It stays mapped for as long as a tensor's data is in use."""

    def __init__(self, path: Path) -> None:
        """Raises `UnsupportedModel` for a file that is not GGUF, is cut short or is of a version not known."""
        self.path = path
        cursor = _Cursor(path)
        tensor_count, field_count = _read_header(cursor)
        self._fields: dict[str, Any] = {}
        for _ in range(field_count):
            key = cursor.string()
            self._fields[key] = _read_value(cursor, cursor.scalar("I"))
        self.tensors: Mapping[str, GgufTensor] = MappingProxyType(
            _read_tensors(cursor, tensor_count, self.field("general.alignment", _DEFAULT_ALIGNMENT))
        )
        architecture = self.field("general.architecture", None)
        if not isinstance(architecture, str):
            cursor.refuse("it has no general.architecture")
        self.architecture: str = architecture

    def field(self, name: str, default: Any) -> Any:
        """The metadata value under `name`: str, int, float, bool or a list of one of them; `default` without one."""
        return self._fields.get(name, default)


class _Cursor:
    """Reads the header front to back; whatever would lie past the file's end is refused."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with path.open("rb") as file:
            if file.read(len(_MAGIC)) != _MAGIC:
                self.refuse("it does not begin with the letters GGUF")
            self._view = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        self.position = len(_MAGIC)

    def refuse(self, why: str) -> NoReturn:
        raise UnsupportedModel(f"{self._path} cannot be read as a GGUF model: {why}")

    def take(self, size: int) -> memoryview:
        """The next `size` bytes."""
        start = self.position
        self.position = start + size
        if self.position > len(self._view):
            self.refuse(f"it ends at byte {len(self._view):,}, before its header does; is the download complete?")
        return self._view[start : self.position]

    def scalar(self, code: str) -> Any:
        return self.scalars(code, 1)[0]

    def scalars(self, code: str, count: int) -> tuple[Any, ...]:
        size = struct.calcsize(f"<{code}")
        return struct.unpack(f"<{count}{code}", self.take(size * count))

    def string(self) -> str:
        return self.strings(1)[0]

    def strings(self, count: int) -> list[str]:
        # One loop over local names: a vocabulary has hundreds of thousands of strings.
        view, position, found = self._view, self.position, []
        try:
            for _ in range(count):
                (size,) = _LENGTH.unpack_from(view, position)
                position += _LENGTH.size
                found.append(str(view[position : position + size], "utf-8"))
                position += size
        except (struct.error, OverflowError):
            position = len(view) + 1
        except UnicodeDecodeError:
            self.take(position + size - self.position)
            self.refuse(f"the string at byte {position:,} is not UTF-8")
        self.take(position - self.position)
        return found

    def array(self, start: int, size: int) -> NDArray[np.uint8]:
        """A view of `size` bytes from byte `start` of the file."""
        if start + size > len(self._view):
            self.refuse(f"it ends at byte {len(self._view):,}, before its tensors do; is the download complete?")
        return np.frombuffer(self._view, np.uint8, size, start)


def _read_header(cursor: _Cursor) -> tuple[int, int]:
    """Number of tensors and of metadata fields."""
    version = cursor.scalar("I")
    if version not in _VERSIONS:
        cursor.refuse(f"its version is {version}; versions {_VERSIONS[0]} and {_VERSIONS[1]}, little-endian, are known")
    tensors, fields = cursor.scalars("Q", 2)
    return tensors, fields


def _read_value(cursor: _Cursor, kind: int) -> Any:
    if kind == _STRING:
        return cursor.string()
    if kind in _SCALARS:
        return cursor.scalar(_SCALARS[kind])
    if kind != _ARRAY:
        cursor.refuse(f"it has a metadata value of the unknown type {kind}")
    element, count = cursor.scalar("I"), cursor.scalar("Q")
    if element == _STRING:
        return cursor.strings(count)
    if element in _SCALARS:
        return list(cursor.scalars(_SCALARS[element], count))
    cursor.refuse(f"it has a metadata array of elements of type {element}; arrays of scalars and strings are known")


def _read_tensors(cursor: _Cursor, count: int, alignment: int) -> dict[str, GgufTensor]:
    """The tensors that the header lists. Their data begins at the next multiple of `alignment` after the list."""
    listed = []
    for _ in range(count):
        name = cursor.string()
        dimensions = cursor.scalar("I")
        if not 1 <= dimensions <= _MAX_DIMENSIONS:
            cursor.refuse(f"the tensor {name} has {dimensions} dimensions; 1 to {_MAX_DIMENSIONS} are allowed")
        shape = tuple(reversed(cursor.scalars("Q", dimensions)))
        listed.append((name, shape, cursor.scalar("I"), cursor.scalar("Q")))
    if not isinstance(alignment, int) or alignment < 1:
        cursor.refuse(f"its alignment is {alignment}; it must be a positive integer")
    base = -(-cursor.position // alignment) * alignment
    return {name: _tensor(cursor, name, shape, kind, base + offset) for name, shape, kind, offset in listed}


def _tensor(cursor: _Cursor, name: str, shape: tuple[int, ...], kind: int, start: int) -> GgufTensor:
    try:
        quantisation = GGMLQuantizationType(kind)
    except ValueError:
        cursor.refuse(f"the tensor {name} is of the unknown type {kind}; a newer gguf package may know it")
    block, block_bytes = GGML_QUANT_SIZES[quantisation]
    if shape[-1] % block:
        cursor.refuse(f"the tensor {name} has rows of {shape[-1]} elements, not a multiple of {block}")
    byte_shape = (*shape[:-1], shape[-1] // block * block_bytes)
    size = 1
    for extent in byte_shape:
        size *= extent
    return GgufTensor(name, quantisation.name, shape, cursor.array(start, size).reshape(byte_shape))
