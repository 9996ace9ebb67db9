"""The type of the attention cache from the outside: load, stored conversations, command line (case O12)."""

from pathlib import Path

import pytest

import strata
from strata.cli.main import main
from strata.config.settings import SETTINGS
from strata.errors import RequestError
from strata.loading.shown import shown_bytes
from strata.model.kv import DEVICE_TYPES, TYPES, token_bytes
from support.tiny_file import write_tiny

TEXT = "a b c d e f g h " * 13


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("tiny") / "tiny.gguf")[0]


def test_all_are_settings() -> None:
    assert SETTINGS["kv"].kind.words == (*TYPES, *DEVICE_TYPES)


@pytest.mark.parametrize("name", TYPES)
def test_an_answer_is_the_same_again_and_knows_its_type(tiny, name) -> None:
    with strata.load(tiny, kv=name) as model:
        assert (model.ready.kv, model.config, model.network.config.qsa.kv) == (name, model.network.config, name)
        first = model.complete(TEXT, max_tokens=12, drafts=0)
        assert model.complete(TEXT, max_tokens=12).text == first.text
    with strata.load(tiny, kv=name) as model:
        assert model.complete(TEXT, max_tokens=12) == first


def test_in_a_process_of_its_own(tiny) -> None:
    with strata.load(tiny, kv="q4") as inside, strata.load(tiny, kv="q4", process=True) as beside:
        assert beside.ready.kv == "q4"
        assert beside.complete(TEXT, max_tokens=8) == inside.complete(TEXT, max_tokens=8)
    with pytest.raises(RequestError, match="f32, f16, q8 or q4, not 'q5'"):
        strata.load(tiny, kv="q5", process=True)
    with pytest.raises(RequestError, match="must be a text"):
        strata.load(tiny, kv=8, process=True)


def test_conversations_of_another_type_are_not_gone_on_with(tiny, tmp_path) -> None:
    found = []
    for name in (*TYPES, *TYPES):
        with strata.load(tiny, folder=str(tmp_path), rows=64, step=64, kv=name) as model:
            reply = model.complete(TEXT, max_tokens=4)
            found.append((reply.text, reply.usage.cached_tokens > 100))
    assert [cached for _, cached in found] == [False] * 4 + [True] * 4
    assert [text for text, _ in found[:4]] == [text for text, _ in found[4:]]


def test_the_command_line(tiny, capsys, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", "/nowhere")
    with strata.load(tiny, kv="q8") as model:
        size = round(token_bytes(model.config))
    assert main(["inspect", str(tiny), "--kv", "q8"]) == 0
    assert f"{shown_bytes(size)} a token, keys and values in q8" in capsys.readouterr().out
    assert main(["inspect", str(tiny), "--kv", "q5"]) == 2
    assert "--kv must be f32, f16, q8, q4 or bf16, not 'q5'" in capsys.readouterr().err
