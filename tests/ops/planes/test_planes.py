"""Planes: nothing is lost, and every plane is where the kernels look for it."""

import numpy as np
import pytest
import torch

from strata.errors import FormatError
from strata.experts.codes import READERS
from strata.formats import by_name
from strata.ops import planes
from strata.ops.planes import LAYOUTS

# Bytes over the file's, at most: a byte where the file has six bits, and signs that the file leaves out.
GROWTH = {"IQ4_XS": 0.015, "Q4_K": 0.028, "Q5_K": 0.023, "IQ3_XXS": 0.041, "IQ2_XS": 0.055, "IQ1_M": 0.036}


@pytest.mark.parametrize("name", LAYOUTS)
def test_unpacking_gives_the_files_bytes(name):
    """Random bytes in every field; also in several chunks."""
    kind = by_name(name)
    raw = np.random.default_rng(0).integers(0, 256, (7, kind.row_bytes(1280)), dtype=np.uint8)
    packed = planes.pack(name, torch.from_numpy(raw), 1280)
    assert packed.dtype == torch.uint8
    assert len(packed) == LAYOUTS[name].nbytes(7, 1280)
    np.testing.assert_array_equal(planes.unpack(name, packed, 7, 1280).numpy(), raw)


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_bit_of_a_block_has_a_place_of_its_own(name):
    """Flipping any one bit changes the planes, so that no two files share planes."""
    kind = by_name(name)
    bits = 8 * kind.bytes
    raw = np.zeros((bits + 1, kind.bytes), dtype=np.uint8)
    raw[np.arange(bits), np.arange(bits) // 8] = 1 << (np.arange(bits) % 8)
    views = LAYOUTS[name].split(torch.from_numpy(raw))
    together = torch.cat([view.reshape(bits + 1, -1) for view in views], dim=1)
    assert len(torch.unique(together, dim=0)) == bits + 1


def test_chunks_do_not_show(monkeypatch):
    raw = torch.from_numpy(np.random.default_rng(1).integers(0, 256, (50, 980), dtype=np.uint8))
    whole = planes.pack("IQ3_XXS", raw, 2560, torch.zeros(LAYOUTS["IQ3_XXS"].nbytes(50, 2560), dtype=torch.uint8))
    monkeypatch.setattr(planes, "_CHUNK", 3000)
    parts = planes.pack("IQ3_XXS", raw, 2560, torch.zeros_like(whole))
    assert torch.equal(whole, parts)


def test_every_type_of_the_judge_has_planes_of_about_its_size():
    assert set(LAYOUTS) == set(READERS)
    for name, layout in LAYOUTS.items():
        assert layout.bits <= by_name(name).bits * (1 + GROWTH.get(name, 0)), name


def test_planes_are_aligned():
    for layout in LAYOUTS.values():
        for rows in (1, 5, 7):
            assert not any(offset % 16 for offset in layout.offsets(rows, 256))


@pytest.mark.parametrize(
    ("name", "raw", "out", "words"),
    [
        ("TQ1_0", (2, 54), None, "TQ1_0"),
        ("Q8_0", (2, 33), None, r"\[N, 68\]"),
        ("Q8_0", (2, 68), 5, r"\[144\]"),
    ],
)
def test_what_does_not_fit_is_refused(name, raw, out, words):
    target = None if out is None else torch.zeros(out, dtype=torch.uint8)
    with pytest.raises(FormatError, match=words):
        planes.pack(name, torch.zeros(raw, dtype=torch.uint8), 64, target)
