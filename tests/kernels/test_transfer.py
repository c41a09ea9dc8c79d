"""Small arrays joined for one transfer."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from radixrt.kernels.transfer import send_joined


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.float64])
def test_each_piece_holds_its_array_and_begins_where_kernels_want_it(dtype: type[np.number]) -> None:
    arrays = [np.arange(size) + 10 * size for size in (1, 7, 0, 16, 3)] + [np.arange(6).reshape(2, 3)]
    buffer, pieces = send_joined(arrays, torch.device("cpu"), dtype)
    assert [piece.tolist() for piece in pieces] == [array.ravel().tolist() for array in arrays]
    assert {(piece.data_ptr() - buffer.data_ptr()) % 16 for piece in pieces} == {0}
    # A copy of the whole is a copy of each.
    other = torch.zeros_like(buffer).copy_(buffer)
    assert other.numel() * other.itemsize % 16 == 0
    for piece in pieces:
        start = piece.storage_offset()
        assert torch.equal(other[start : start + len(piece)], piece)
