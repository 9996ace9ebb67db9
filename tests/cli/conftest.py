from pathlib import Path

import pytest

from support.tiny_file import write_tiny


@pytest.fixture(scope="session")
def tiny(tmp_path_factory) -> Path:
    """A real file of a tiny random model, under a name with letters from everywhere (case M16)."""
    folder = tmp_path_factory.mktemp("model") / "мод ель" / "漢字 & 'x'"
    folder.mkdir(parents=True)
    return write_tiny(folder / "tiny.gguf")[0]


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch) -> None:
    """No settings of whoever runs the tests."""
    monkeypatch.setenv("XDG_CONFIG_HOME", "/nowhere")
