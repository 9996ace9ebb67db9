"""Split sets: any shard opens all, and sets that do not belong together are refused. Public faults, case M04."""

import os
import re
import shutil

import numpy as np
import pytest

from strata.errors import GgufError
from strata.gguf import open_model
from support.ggufs import F32, Tensor, build, tiny_model

NAMES = ["token_embd.weight", "blk.0.ffn_gate_exps.weight", "blk.0.ffn_up_exps.weight", "output_norm.weight"]
PLACEMENTS = {
    "in order": [NAMES[:2], NAMES[2:3], NAMES[3:]],
    "first without tensors": [[], NAMES[:3], NAMES[3:]],
    "empty in the middle": [NAMES[:1], [], NAMES[1:]],
    "reversed": [NAMES[3:], NAMES[1:3][::-1], NAMES[:1]],
    "one": [NAMES],
}


def split(folder, placement="in order", **metadata):
    return tiny_model(folder / "m.gguf", shards=PLACEMENTS[placement], **metadata)


def shard(folder, part, parts, entries=None, tensors=1, **keys):
    """One hand-made shard ``s-0000{part}-of-0000{parts}.gguf`` with one small tensor."""
    entries = {
        "general.architecture": ("string", "qwen4exp"),
        "split.no": ("u16", part - 1),
        "split.count": ("u16", parts),
        "split.tensors.count": ("i32", parts * tensors),
    } | {key.replace("_", "."): value for key, value in keys.items()}
    table = [Tensor(f"t{part}.{index}", [8], F32, np.full(8, part, np.float32).tobytes()) for index in range(tensors)]
    path = folder / f"s-{part:05d}-of-{parts:05d}.gguf"
    path.write_bytes(build([(key, *value) for key, value in entries.items() if value], table).data)
    return path


def refused(path, *words):
    with pytest.raises(GgufError) as caught:
        open_model(path)
    for word in words:
        assert re.search(word, str(caught.value)), f"{word!r} not in: {caught.value}"


@pytest.mark.parametrize("given", range(3))
@pytest.mark.parametrize("placement", [name for name in PLACEMENTS if name != "one"])
def test_any_shard_opens_the_set(tmp_path, placement, given):
    whole = tmp_path / "whole.gguf"
    tiny_model(whole)
    paths = split(tmp_path, placement)
    assert [path.name for path in paths] == [f"m-0000{part}-of-00003.gguf" for part in (1, 2, 3)]
    model = open_model(paths[given])
    assert model.files == paths
    assert set(model.tensors) == set(NAMES)
    for names, path in zip(PLACEMENTS[placement], paths, strict=True):
        assert all(model.tensors[name].path == path for name in names)
    assert model.metadata["tokenizer.ggml.tokens"] == ["a", "b", "Ġc"]
    expected = open_model(whole)
    for name in NAMES:
        np.testing.assert_array_equal(model.load(name), expected.load(name))
    np.testing.assert_array_equal(model.rows(NAMES[0], [3, 1]), expected.load(NAMES[0])[[3, 1]])


def test_a_set_of_one(tmp_path):
    (path,) = split(tmp_path, "one")
    assert path.name == "m-00001-of-00001.gguf"
    assert set(open_model(path).tensors) == set(NAMES)


def test_gate_and_up_of_one_layer_in_different_files_and_types(tmp_path):
    model = open_model(split(tmp_path)[0])
    gate, up = model.tensors[NAMES[1]], model.tensors[NAMES[2]]
    assert gate.path != up.path
    assert gate.type.name != up.type.name


@pytest.mark.parametrize("kind", ["u8", "i16", "u32", "u64", "i64"])
def test_split_keys_of_any_integer_type(tmp_path, kind):
    keys = {"split_no": (kind, 0), "split_count": (kind, 2), "split_tensors_count": (kind, 2)}
    first = shard(tmp_path, 1, 2, **keys)
    shard(tmp_path, 2, 2, **(keys | {"split_no": (kind, 1)}))
    assert set(open_model(first).tensors) == {"t1.0", "t2.0"}


def test_later_shards_need_only_their_own_keys(tmp_path):
    first = shard(tmp_path, 1, 2)
    shard(tmp_path, 2, 2, general_architecture=None, split_tensors_count=None)
    assert set(open_model(first).tensors) == {"t1.0", "t2.0"}


@pytest.mark.parametrize("given", [1, 3])
def test_a_missing_shard_is_named(tmp_path, given):
    paths = split(tmp_path)
    paths[1].unlink()
    refused(paths[given - 1], "split into 3 files, of which 1 are missing", re.escape(str(paths[1])), "original names")


def test_many_missing_shards_are_counted(tmp_path):
    refused(shard(tmp_path, 2, 5000), "split into 5000 files, of which 4999 are missing", "and 4996 more")


def test_a_renamed_shard_is_missing_under_its_name(tmp_path):
    paths = split(tmp_path)
    paths[2].rename(tmp_path / "other.gguf")
    refused(paths[0], re.escape(str(paths[2])))
    refused(tmp_path / "other.gguf", r"other\.gguf", "one of 3 files", "-0000N-of-00003.gguf", "original name")


def test_two_shards_with_exchanged_names(tmp_path):
    paths = split(tmp_path)
    paths[1].rename(tmp_path / "aside")
    paths[2].rename(paths[1])
    (tmp_path / "aside").rename(paths[2])
    refused(paths[0], "m-00002-of-00003.gguf", "'split.no' is 2, expected 1", "renamed")


def test_a_name_that_claims_another_number_of_parts(tmp_path):
    paths = split(tmp_path)
    path = tmp_path / "m-00001-of-00004.gguf"
    paths[0].rename(path)
    refused(path, "one of 3 files", "-of-00003.gguf")


def test_a_whole_file_under_a_parts_name(tmp_path):
    path = tmp_path / "m-00001-of-00002.gguf"
    tiny_model(path)
    refused(path, "m-00001-of-00002.gguf", "part 1 of 2", "'split.count'")


def test_a_part_number_outside_the_set(tmp_path):
    paths = split(tmp_path)
    for number in (0, 4):
        path = tmp_path / f"m-0000{number}-of-00003.gguf"
        shutil.copy(paths[1], path)
        refused(path, f"no part {number} of 3")


def test_a_shard_of_a_set_of_other_size(tmp_path):
    first = shard(tmp_path, 1, 2)
    foreign = shard(tmp_path, 2, 3)
    foreign.rename(tmp_path / "s-00002-of-00002.gguf")
    refused(first, "s-00002-of-00002.gguf", "'split.count' is 3, expected 2", "another model")


def test_a_shard_without_split_keys(tmp_path):
    first = shard(tmp_path, 1, 2)
    shard(tmp_path, 2, 2, split_count=None, split_no=None, split_tensors_count=None)
    refused(first, "s-00002-of-00002.gguf", "'split.count' is missing")


def test_a_first_shard_without_a_total(tmp_path):
    first = shard(tmp_path, 1, 2, split_tensors_count=None)
    shard(tmp_path, 2, 2)
    refused(first, "s-00001-of-00002.gguf", "'split.tensors.count' is missing")


def test_shards_that_disagree_on_the_total(tmp_path):
    first = shard(tmp_path, 1, 2)
    shard(tmp_path, 2, 2, split_tensors_count=("i32", 3))
    refused(first, "s-00002-of-00002.gguf", "'split.tensors.count' is 3, expected 2")


def test_a_total_that_the_files_do_not_hold(tmp_path):
    first = shard(tmp_path, 1, 2, split_tensors_count=("i32", 3))
    shard(tmp_path, 2, 2, split_tensors_count=("i32", 3))
    refused(
        first, "hold 2 tensors", "'split.tensors.count' of .*s-00001-of-00002.gguf is 3", "s-00002-of-00002.gguf: 1"
    )


def test_a_total_that_a_single_file_does_not_hold(tmp_path):
    path = shard(tmp_path, 1, 1, split_tensors_count=("i32", 3))
    refused(path, "'split.tensors.count' is 3, but the file has 1 tensors")


def test_a_tensor_in_two_shards(tmp_path):
    first = shard(tmp_path, 1, 2)
    data = first.read_bytes().replace(b"split.no" + bytes([2, 0, 0, 0, 0]), b"split.no" + bytes([2, 0, 0, 0, 1]))
    (tmp_path / "s-00002-of-00002.gguf").write_bytes(data)
    refused(first, "'t1.0' is in both .*s-00001-of-00002.gguf and .*s-00002-of-00002.gguf", "another model")


def test_a_shard_of_another_architecture(tmp_path):
    first = shard(tmp_path, 1, 2)
    shard(tmp_path, 2, 2, general_architecture=("string", "llama"))
    refused(first, "s-00002-of-00002.gguf", "'llama'", "'qwen4exp' in .*s-00001-of-00002.gguf")


def test_a_damaged_shard_is_named(tmp_path):
    paths = split(tmp_path)
    os.truncate(paths[2], paths[2].stat().st_size - 1)
    refused(paths[0], "m-00003-of-00003.gguf", "output_norm.weight", "truncated")


def test_links_to_every_shard(tmp_path):
    """As download caches lay it out: links with the right names to files with meaningless ones."""
    paths = split(tmp_path)
    snapshot, blobs = tmp_path / "snapshot", tmp_path / "blobs"
    snapshot.mkdir()
    blobs.mkdir()
    for index, path in enumerate(paths):
        path.rename(blobs / f"{index:064x}")
        (snapshot / path.name).symlink_to(blobs / f"{index:064x}")
    assert set(open_model(snapshot / paths[1].name).tensors) == set(NAMES)


@pytest.mark.parametrize("link_name", ["m-00002-of-00003.gguf", "latest.gguf"])
def test_a_link_to_one_shard_finds_the_others_beside_its_target(tmp_path, link_name):
    paths = split(tmp_path)
    link = tmp_path / "links" / link_name
    link.parent.mkdir()
    link.symlink_to(paths[1])
    assert set(open_model(link).tensors) == set(NAMES)


def test_a_prefix_may_look_like_a_part_itself(tmp_path):
    paths = tiny_model(tmp_path / "a-00001-of-00002.gguf.gguf", shards=PLACEMENTS["in order"])
    assert paths[0].name == "a-00001-of-00002.gguf-00001-of-00003.gguf"
    assert set(open_model(paths[2]).tensors) == set(NAMES)
