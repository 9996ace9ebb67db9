"""The arithmetic of the roofline; what a GPU measures is not for here."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("triton")

from strata.lab.roofline.__main__ import main
from strata.lab.roofline.launches import Launch
from strata.lab.roofline.moved import moved
from strata.lab.roofline.spans import Span, own_time
from strata.lab.roofline.table import as_text, rows


def test_kernels_one_after_another_take_what_they_take():
    assert own_time([Span("a", 0, 3), Span("b", 3, 5), Span("a", 6, 7)]) == {"a": (5, 2), "b": (2, 1)}


def test_a_kernel_that_waits_for_another_gets_what_it_adds():
    # b starts early and waits; c runs beside a and is not waited for.
    assert own_time([Span("a", 0, 4), Span("b", 1, 6), Span("c", 0, 3)]) == {"c": (3, 1), "a": (1, 1), "b": (2, 1)}


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 50), st.integers(0, 20)), min_size=1))
def test_all_together_are_the_window(given_spans):
    spans = [Span(name, start, start + time) for name, start, time in given_spans]
    whole = max(span.end for span in spans) - min(span.start for span in spans)
    assert sum(time for time, _ in own_time(spans).values()) == whole


def test_bandwidth_is_bytes_over_own_time():
    window, product, other = rows({"other": (10.0, 2), "product": (30.0, 1)}, {"product": 60e6}, {"product": 4.5}, 4000)
    assert (window.launches, window.microseconds, window.share) == (3, 40.0, 1.0)
    assert window.bandwidth == pytest.approx(60e6 / 40e-6 / 4e12)
    assert (product.kernel, product.share, product.per_weight) == ("product", 0.75, 4.5)
    assert product.bandwidth == pytest.approx(0.5)
    assert (other.megabytes, other.bandwidth) == (None, None)
    assert len(as_text([window, product, other]).splitlines()) == 4


def test_bytes_of_a_launch():
    whole = Launch("mix", {"gates": torch.empty(3, 8), "out": torch.empty(3, 2), "H": 2}, (1,))
    assert moved(whole) == 3 * 8 * 4 + 3 * 2 * 4
    same = torch.empty(5)
    assert moved(Launch("mix", {"a": same, "b": same}, (1,))) == 20


def test_of_experts_only_the_chosen_ones_count():
    slots = torch.empty(100, 1000, dtype=torch.uint8)
    arguments = {"slots_base": slots, "stride": 1000, "up_at": 300, "totals": torch.tensor([7, 0], dtype=torch.int32)}
    assert moved(Launch("gate_up_kernel", arguments, (1,))) == 7 * 600 + 8
    down = {"slots_base": slots, "stride": 1000, "down_at": 600, "totals": arguments["totals"]}
    assert moved(Launch("down_kernel", down, (1,))) == 7 * 400 + 8


def test_of_the_states_one_layer_of_each_conversation():
    states = torch.empty(9, 4, 2, 3, 3)
    assert moved(Launch("window", {"states": states, "places": torch.empty(2, dtype=torch.int32)}, (1,))) == (
        2 * 2 * 2 * 3 * 3 * 4 + 8
    )


def test_attention_reads_what_is_selected():
    cells = torch.empty(10, 64, 2, 16, dtype=torch.bfloat16)
    seen = torch.tensor([5, 1000], dtype=torch.int32)
    arguments = {"keys": cells, "seen": seen, "BUDGET": 4, "RATIO": 4, "PARTS": 2}
    assert moved(Launch("attend", arguments, (1,))) == (5 + 19) * 2 * 16 * 2 + 8


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so(capsys):
    assert main(["nothing.gguf"]) == 1
    assert "there is none" in capsys.readouterr().err
