"""The GGUF reader against the gguf package's own, and against damaged files."""

from __future__ import annotations

import contextlib
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter
from gguf.quants import quantize
from hypothesis import given
from hypothesis import strategies as st

from radixrt.errors import UnsupportedModel
from radixrt.text.gguf import GgufFile


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> Path:
    """A small file with a value of every kind and tensors of three formats."""
    path = tmp_path_factory.mktemp("gguf") / "small.gguf"
    writer = GGUFWriter(path, "llama")
    writer.add_string("text", "žluť")
    writer.add_uint8("small", 200)
    writer.add_int64("negative", -(2**40))
    writer.add_bool("yes", True)
    writer.add_float32("half", 0.5)
    writer.add_array("strings", ["a", "", "書道"])
    writer.add_array("numbers", [1, -2, 3])
    random = np.random.default_rng(0)
    matrix = random.standard_normal((3, 64)).astype(np.float32)
    writer.add_tensor("matrix", matrix)
    writer.add_tensor("half_matrix", matrix.astype(np.float16))
    writer.add_tensor("packed", quantize(matrix, GGMLQuantizationType.Q8_0), raw_dtype=GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_values_and_tensors_are_those_that_the_gguf_package_reads(written):
    file, oracle = GgufFile(written), GGUFReader(written)
    names = [name for name in oracle.fields if not name.startswith("GGUF.")]
    assert len(names) == 8
    for name in names:
        value = file.field(name, None)
        assert value == oracle.fields[name].contents()
        assert type(value) is type(oracle.fields[name].contents())
    assert list(file.tensors) == [tensor.name for tensor in oracle.tensors]
    for tensor in oracle.tensors:
        ours = file.tensors[tensor.name]
        assert ours.format == tensor.tensor_type.name
        assert ours.shape == tuple(reversed(tensor.shape.tolist()))
        assert ours.data.tobytes() == tensor.data.tobytes()


def test_a_tensor_is_a_read_only_view_with_its_rows_outermost(written):
    file = GgufFile(written)
    assert file.architecture == "llama"
    assert file.tensors["packed"].shape == (3, 64)
    assert file.tensors["packed"].data.shape == (3, 64 // 32 * 34)
    assert not file.tensors["matrix"].data.flags.owndata
    assert not file.tensors["matrix"].data.flags.writeable


def test_a_field_that_is_absent_has_the_default(written):
    assert GgufFile(written).field("no.such", 7) == 7


@pytest.mark.parametrize("content", [b"", b"GG", b"not a model at all", b"GGUF" + b"\1\0\0\0" + bytes(16)])
def test_what_is_not_gguf_is_refused_by_its_path(tmp_path, content):
    path = tmp_path / "odd.gguf"
    path.write_bytes(content)
    with pytest.raises(UnsupportedModel, match=r"odd\.gguf"):
        GgufFile(path)


def test_a_file_cut_short_anywhere_is_refused(written, tmp_path):
    whole = written.read_bytes()
    path = tmp_path / "cut.gguf"
    tensor = GGUFReader(written).tensors[-1]
    end = tensor.data_offset + tensor.n_bytes
    for size in [*range(0, end, 7), end - 1]:
        path.write_bytes(whole[:size])
        with pytest.raises(UnsupportedModel):
            GgufFile(path)


@given(st.data())
def test_a_damaged_header_is_read_or_refused_but_never_crashes(written, tmp_path_factory, data):
    content = bytearray(written.read_bytes()[:600])
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(4, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "damaged.gguf"
    path.write_bytes(content + written.read_bytes()[600:])
    with contextlib.suppress(UnsupportedModel):
        GgufFile(path)
