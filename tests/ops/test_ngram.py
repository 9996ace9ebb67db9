"""n-gram hashing against the published constants and rows of the real model (model spec, section 10)."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata.errors import StrataError
from strata.model.config import Ple
from strata.ops.ngram.hash import check, row_numbers
from support.tiny import SETTINGS, oracle, oracle_ple

SIZES = [
    *(20000003, 20000023, 20000033, 20000047, 20000059, 20000063, 20000069, 20000077),
    *(20000081, 20000093, 20000107, 20000147, 20000153, 20000159, 20000161, 20000171),
]
MULTIPLIERS = (23703573157769, 20109073645365, 8052911324071)
OFFSETS = np.cumsum([0, *SIZES[:-1]]).tolist()
REAL = Ple(
    layer=1, n=3, heads=8, width=160, conv=4, eos=248044,
    multipliers=MULTIPLIERS, offsets=tuple(OFFSETS), sizes=tuple(SIZES),
)  # fmt: skip
FIRST = [
    *(1876085, 31308566, 59776718, 71834192, 97499724, 100188615, 134972424, 142751402),
    *(178377549, 180579936, 219367837, 221375066, 245391246, 270637420, 285992863, 304819575),
]
THIRD = [
    *(14605717, 24410875, 49313567, 72177428, 86060820, 104022010, 130963819, 146886202),
    *(161523077, 195939126, 219424565, 220811782, 248020141, 275228530, 284297999, 309645223),
]


def test_published_rows_of_the_real_model():
    assert OFFSETS[-1] == 300001275
    assert row_numbers((248044, 248044), [1000], REAL).tolist() == [FIRST]
    assert row_numbers((1, 2), [3], REAL).tolist() == [THIRD]
    assert row_numbers((248044, 248044), [1, 2, 3], REAL)[2].tolist() == THIRD


def test_an_eos_keeps_its_own_context_and_cuts_that_of_later_tokens():
    rows = row_numbers((248044, 248044), [5, 6, 248044, 7, 8], REAL)
    assert rows[2].tolist() == row_numbers((5, 6), [248044], REAL)[0].tolist()
    assert rows[3].tolist() == row_numbers((248044, 248044), [7], REAL)[0].tolist()
    assert rows[4].tolist() == row_numbers((248044, 7), [8], REAL)[0].tolist()
    # an EOS one back also hides the token two back
    assert rows[3].tolist() == row_numbers((6, 248044), [7], REAL)[0].tolist()


def slow_row(context, c):
    """Section 10.2 word for word, in Python's integers; context is all ids up to and with the token."""
    ids, dead = [context[-1]], False
    for s in range(1, c.n):
        token = c.eos if dead or s >= len(context) else context[-1 - s]
        dead = dead or token == c.eos
        ids.append(token)
    mixed, rows = ids[0] * c.multipliers[0], []
    for s in range(1, c.n):
        mixed ^= ids[s] * c.multipliers[s]
        heads = range((s - 1) * c.heads, s * c.heads)
        rows.extend(mixed % c.sizes[h] + c.offsets[h] for h in heads)
    return rows


@given(st.lists(st.sampled_from([248044, 0, 1, 248319, 77, 78]), min_size=1, max_size=12), st.data())
def test_any_cut_of_any_sequence(ids, data):
    cut = data.draw(st.integers(0, len(ids)))
    expected = [slow_row(ids[: t + 1], REAL) for t in range(len(ids))]
    start = (248044, 248044)
    first = row_numbers(start, ids[:cut], REAL).tolist()
    history = (*start, *ids[:cut])[cut:]
    assert first + row_numbers(history, ids[cut:], REAL).tolist() == expected


@pytest.mark.parametrize("name", ["base", "other"])
def test_rows_of_the_oracle(name):
    settings = SETTINGS[name]
    m, sizes, offsets = oracle_ple(settings)
    c = Ple(
        layer=1, n=3, heads=4, width=8, conv=4, eos=0,
        multipliers=tuple(m.tolist()), sizes=tuple(sizes.tolist()), offsets=tuple(offsets.tolist()),
    )  # fmt: skip
    embedding = oracle(name).model.layers[1].ple.ple_embedding
    ids = [5, 9, 0, 17, 3, 0, 0, 44]
    import torch

    captured = []
    hook = embedding.ngram_embedding.register_forward_pre_hook(lambda _, args: captured.append(args[0]))
    try:
        embedding(torch.tensor([ids]), None)
    finally:
        hook.remove()
    assert row_numbers((0, 0), ids, c).tolist() == captured[0].reshape(len(ids), -1).tolist()


def test_the_constants_follow_from_the_seed():
    """Section 10.1: splitmix64 multipliers and successive primes, recomputed for the real and the tiny vocabulary."""
    for V, expected in ((248320, MULTIPLIERS), (512, (4295158889763781, 17440218147737327, 1270917961434445))):
        half, mask, G = ((1 << 63) - 1) // V // 2, (1 << 64) - 1, 0x9E3779B97F4A7C15
        got = []
        for i in range(3):
            z = (1234 + G * (i + 1) + G) & mask
            z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
            z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
            got.append(2 * ((z ^ (z >> 31)) % half) + 1)
        assert tuple(got) == expected
    assert oracle_ple(SETTINGS["base"])[0].tolist() == list(expected)


def test_rows_of_the_smallest_vector():
    """Case P03: the lags' multipliers in the right order; an end id in the middle resets; cuts change nothing."""
    c = Ple(layer=0, n=3, heads=1, width=1, conv=4, eos=99, multipliers=(3, 5, 7), offsets=(0, 101), sizes=(101, 103))
    start = (99, 99)
    assert row_numbers(start, [7, 9, 11], c).tolist() == [[1, 124], [56, 136], [12, 162]]
    whole = row_numbers(start, [7, 99, 9, 99, 11], c).tolist()
    assert whole == [slow_row([7, 99, 9, 99, 11][: t + 1], c) for t in range(5)]
    assert whole[2] == row_numbers(start, [9], c)[0].tolist()
    assert row_numbers(start, [7], c).tolist() + row_numbers((99, 7), [9, 11], c).tolist() == [
        [1, 124],
        [56, 136],
        [12, 162],
    ]


def test_a_number_outside_the_table_is_an_error():
    """Case P08: never a clamp, never a read that wraps."""
    good = np.array([[0, 5], [9, 3]])
    check(good, 10)
    for bad in (10, -1, np.int64(np.float64(-np.inf).view(np.int64)), 0x7F7F7F7F):
        numbers = good.copy()
        numbers[1, 0] = bad
        with pytest.raises(StrataError, match=rf"row {bad} .*token 1 of its pass, number 0\), but it has 10 rows"):
            check(numbers, 10)
