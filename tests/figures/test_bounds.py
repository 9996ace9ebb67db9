"""What bandwidths allow, against arithmetic that was done by hand for published shapes and cards."""

import pytest

from figures.bounds import bounds, prompt, restored, window

# Megabytes of one token at 2.85 bits a weight: 4,760 in all, of which 840 are routed experts, 480 of them.
FACTS = {
    "layers": 48, "topk": 10, "dense_bytes": 3694e6, "state_bytes": 226e6, "slot_bytes": 1.75e6, "expert_bytes": 1.75e6,
}  # fmt: skip


def met(hit_rate):
    missing = 480 * (1 - hit_rate)
    return {"union": 480, "resident": 480 * hit_rate, "by_link": missing / 3, "by_host": missing * 2 / 3}


@pytest.mark.parametrize(
    ("vram", "hit_rate", "cpu", "link", "tokens"),
    [
        (936, 0.50, 70, 25, 116),
        (936, 0.80, 70, 25, 168),
        (936, 0.90, 40, 12.5, 173),
        (672, 0.65, 40, 12.5, 87),
        (936, 0.00, 70, 0, 62),
        (936, 0.95, 0, 52, 198),
    ],
)
def test_plain_decode_on_cards_of_known_bandwidth(vram, hit_rate, cpu, link, tokens):
    speeds = {"vram_gbs": vram, "ram_gbs": cpu, "link_gbs": link}
    found = window(speeds, {"facts": FACTS, "met": {"decode": met(hit_rate)}}, "decode")
    assert 1e3 / found["ms"] == pytest.approx(tokens, abs=0.9)
    assert found["ms"] == pytest.approx(found["dense_ms"] + max(found["hits_ms"], found["misses_ms"]))


def test_both_sides_read_one_memory():
    alone = {"vram_gbs": 4300, "ram_gbs": 80, "link_gbs": 55}
    beside = {"ram_beside_link_gbs": 45, "link_beside_ram_gbs": 35}
    arm = {"facts": FACTS, "met": {"decode": met(0)}}
    apart, together = (window(speeds, arm, "decode") for speeds in (alone, alone | beside))
    assert together["misses_ms"] == pytest.approx(apart["misses_ms"] * 135 / 80)
    assert together["dense_ms"] == apart["dense_ms"]


def test_a_prompt_is_bound_by_the_link_or_by_the_tensor_cores():
    facts = {"expert_bytes": 43e9 / 24_576}
    part = {"facts": facts, "brought": {"8192": 24_576}}
    assert prompt({"link_gbs": 52, "matmul_tflops": 494}, part, 8192)["bound"] == pytest.approx(9900, abs=10)
    assert prompt({"link_gbs": 1e6, "matmul_tflops": 494}, part, 8192)["bound"] == pytest.approx(41_000, rel=0.01)
    assert prompt({"link_gbs": 52}, part, 8192) is None


def test_a_conversation_comes_back_at_the_pace_of_disk_and_link():
    speeds = {"link_gbs": 51.4, "vram_gbs": 1e9}
    part = {"facts": FACTS, "bytes": 1.8e9, "disk_gbs": 5.0}
    assert restored(speeds, part, disk=False)["bound"] == pytest.approx(35, abs=0.1)
    assert restored(speeds, part, disk=True)["bound"] == pytest.approx(395, abs=1)
    assert restored(speeds, part | {"facts": None}, disk=True) is None
    eight = bounds({"bandwidths": speeds, "restore": part | {"q8": {"bytes": 0.9e9}}})
    assert eight["restore_ram_q8_ms"]["bound"] == pytest.approx(17.5, abs=0.1)
    assert eight["restore_disk_q8_ms"]["bound"] == pytest.approx(197.5, abs=1)
    assert "restore_ram_q8_ms" not in bounds({"bandwidths": speeds, "restore": part})
    faster = part | {"rounds": {"disk_parts_ms": [{"state": 400.0}, {"state": 300.0}]}}  # 6 GB/s, once
    assert bounds({"bandwidths": speeds, "restore": faster})["restore_disk_ms"]["bound"] == pytest.approx(335, abs=1)
    packed = part | {"file_bytes": 1.2e9, "q8": {"bytes": 0.9e9, "file_bytes": 0.8e9}}  # 240 and 160 ms of the disk
    both = bounds({"bandwidths": speeds, "restore": packed})
    assert both["restore_disk_ms"]["bound"] == pytest.approx(275, abs=1)
    assert both["restore_disk_q8_ms"]["bound"] == pytest.approx(177.5, abs=1)
    assert both["restore_ram_ms"]["bound"] == pytest.approx(35, abs=0.1)
    faster = packed | {"rounds": {"disk_parts_ms": [{"state": 200.0}]}}  # 1.2 GB in 200 ms
    assert bounds({"bandwidths": speeds, "restore": faster})["restore_disk_ms"]["bound"] == pytest.approx(235, abs=1)


def test_all_that_is_known_gets_a_bound_and_nothing_else():
    assert bounds({}) == {}
    speeds = {"vram_gbs": 4300, "ram_gbs": 100, "link_gbs": 55, "matmul_tflops": 700}
    arm = {"facts": FACTS, "met": {"decode": met(0), "window4": met(0.8)}, "medians": {"window4_ms": 5.0}}
    found = bounds(
        {
            "bandwidths": speeds,
            "decode": {"arms": {"resident": arm, "none": arm}},
            "caps": {"arms": {"resident": arm, "cap24": arm, "cap12": {"does_not_fit": "12 GB are too few"}}},
        }
    )
    cpu = {f"cpu_{kind}_gbs" for kind in ("iq3_xxs", "iq4_nl", "q8_0")}
    assert found.keys() == {"none_resident_tps", "plain_decode_tps", "cap24_window_ratio", *cpu}
    assert found["none_resident_tps"]["bound"] == pytest.approx(1e3 / (3920 / 4300 + 840 / 155), rel=1e-3)
    assert found["plain_decode_tps"]["bound"] == pytest.approx(1e3 * 4300 / 4760, rel=1e-3)
    assert found["cap24_window_ratio"]["bound"] == pytest.approx(1 + (168 / 155 - 672 / 4300) / 5, rel=1e-3)
    assert bounds({"decode": {"arms": {"none": arm}}}) == {}
