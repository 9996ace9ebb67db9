"""A hub with two repositories, and an empty folder for what is pulled."""

import random
from collections.abc import Iterator

import pytest

from strata.hub.folder import Folder
from strata.hub.remote import Hub
from support.hub import FakeHub, serving

MB = 1 << 20


def content(seed: int, size: int = 3 * MB // 2) -> bytes:
    """Bytes of a file."""
    return random.Random(seed).randbytes(size)


@pytest.fixture
def site(monkeypatch) -> Iterator[FakeHub]:
    """The stand-in, with nothing but the loopback to be reached."""
    for name in ("HF_TOKEN", "HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    hub = FakeHub()
    hub.files["maker/Flash-GGUF"] = {
        "README.md": b"# A model",
        "Flash-IQ3_XXS-00001-of-00002.gguf": content(1),
        "Flash-IQ3_XXS-00002-of-00002.gguf": content(2, 900_000),
        "UD-Q4_K_XL/Flash-UD-Q4_K_XL-00001-of-00003.gguf": content(3, 1000),
        "UD-Q4_K_XL/Flash-UD-Q4_K_XL-00002-of-00003.gguf": content(4, 1_600_000),
        "UD-Q4_K_XL/Flash-UD-Q4_K_XL-00003-of-00003.gguf": content(5, 1_700_000),
        "mtp/Flash-mtp-Q2_0.gguf": content(6, 50_000),
        "mmproj-BF16.gguf": content(7, 40_000),
    }
    hub.files["maker/Single"] = {"model.gguf": content(8, 300_000), "config.json": b"{}"}
    hub.git.add("README.md")
    with serving(hub):
        yield hub


@pytest.fixture
def hub(site) -> Hub:
    return Hub(site.url)


@pytest.fixture
def folder(tmp_path) -> Folder:
    return Folder(tmp_path / "models")
