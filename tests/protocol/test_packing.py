from __future__ import annotations

import numpy as np
import pytest

from radixrt.protocol.ids import pack_ids, unpack_ids
from radixrt.protocol.packing import ID_BYTES, pack, unpack

IDS = [0, 1, 255, 49_151, 2**31 - 1, -1]


def test_ids_travel_alike_with_numpy_and_without() -> None:
    assert pack(IDS) == pack_ids(IDS)
    assert len(pack(IDS)) == len(IDS) * ID_BYTES
    assert unpack(pack_ids(IDS)).tolist() == unpack_ids(pack(IDS)).tolist() == IDS
    assert np.asarray(unpack(pack(IDS))).dtype == np.int32


@pytest.mark.parametrize(
    ("ids", "kind"), [([2**31], OverflowError), ([-(2**31) - 1], OverflowError), ([0.5], TypeError), (["1"], TypeError)]
)
def test_what_are_no_ids_is_refused(ids: list[int], kind: type[Exception]) -> None:
    with pytest.raises(kind):
        pack(ids)


def test_a_piece_of_an_id_is_refused() -> None:
    with pytest.raises(ValueError, match="multiple"):
        unpack(b"abcde")
