"""Our network on the oracle's tiny weights, and the oracle's answers."""

import contextlib
import functools
from collections.abc import Iterator
from unittest import mock

import torch
from torch import Tensor

from strata.model.load_config import load_config
from strata.model.load_weights import load_weights
from strata.model.mtp import MtpOptions
from strata.model.network import Network
from strata.ops import bind
from support import tiny
from support.mtp_oracle import mtp_oracle


@functools.cache
def network(name: str, *, drafts: bool = False, options: MtpOptions | None = None) -> Network:
    """Our network on the tiny model `name` in float32, with the hand-built draft head if asked."""
    arrays = dict(tiny.tensors(name))
    if drafts:
        arrays |= tiny.mtp_tensors(name, mtp_oracle(name))
    config = load_config(tiny.metadata(tiny.SETTINGS[name], mtp=drafts))
    weights = load_weights(tiny.MemoryDirectory(arrays), config, exact=True)
    return Network(config, weights, bind("cpu", config), drafts=drafts, mtp=options or MtpOptions())


@contextlib.contextmanager
def stable_topk() -> Iterator[None]:
    """Give the oracle our tie rule, larger first and then the lower index: it leaves ties open (spec 7.2)."""

    def topk(x: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True):  # noqa: A002, ARG001
        values, indices = torch.sort(x, dim=dim, descending=largest, stable=True)
        return torch.return_types.topk((values.narrow(dim, 0, k), indices.narrow(dim, 0, k)))

    with mock.patch.object(torch, "topk", topk), mock.patch.object(Tensor, "topk", topk):
        yield


def prompt(name: str, length: int, seed: int = 3) -> list[int]:
    """Random ids with one EOS (id 0) in the middle."""
    vocabulary = tiny.SETTINGS[name]["vocab_size"]
    ids = torch.randint(1, vocabulary, (length,), generator=torch.Generator().manual_seed(seed)).tolist()
    ids[length // 2] = 0
    return ids


@functools.cache
def oracle_logits(name: str, length: int, seed: int = 3) -> Tensor:
    """The oracle's logits [T, V] for `prompt` in one pass."""
    with torch.no_grad(), stable_topk():
        return tiny.oracle(name)(torch.tensor([prompt(name, length, seed)])).logits[0]
