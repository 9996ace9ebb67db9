"""A recording of what a real model visits in somebody's own texts, window by window."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strata.errors import StrataError
from strata.lab.routing.listening import listening
from strata.lab.routing.recorder import Recorder
from strata.lab.routing.trace import TraceWriter

if TYPE_CHECKING:
    from strata.api import Model
    from strata.model import Network

PROMPT = 64
"""Tokens of a text that are read as a prompt: what comes first in a conversation is nobody's answer."""


def record(
    model: "Model", texts: Sequence[Path], out: Path, *, rows: int = 4, answer: int = 0, most: int | None = None
) -> int:
    """Have a model go through some texts, each a conversation, and write what its routers choose.

    Args:
        model: in this process.
        texts: files, in UTF-8.
        out: where the recording goes.
        rows: of a window; all of them are kept, for the text says what comes next.
        answer: 0, or let the model go on behind each text by so many tokens, with drafts as they pay: then the whole
            text is its prompt, and windows are those of its answer.
        most: tokens of each text that are looked at.

    Returns:
        Windows recorded.

    Raises:
        StrataError: a text cannot be read or is too short, or the recording cannot be written.
    """
    import torch

    plain = model.network
    layers, moe = [layer.moe for layer in plain.weights.layers], plain.config.moe
    about: dict[str, Any] = {"model": model.name, "fingerprint": model.ready.fingerprint}
    about |= {"texts": [path.name for path in texts], **({"answer": answer} if answer else {"rows": rows})}
    with TraceWriter(out, len(layers), moe.E, moe.topk, **about) as writer, torch.inference_mode():
        recorder = Recorder(writer, len(layers))
        network, heard = listening(plain, recorder)
        for path in texts:
            ids = _ids(model, path)[:most][: plain.config.context - 1 - answer]
            if len(ids) < 2:
                raise StrataError(f"{path} has no two tokens; a text needs some to be gone through")
            if answer:
                _answer(network, ids, model, answer)
            else:
                _follow(network, ids, rows)
            heard.flush()
        return recorder.windows


def _ids(model: "Model", path: Path) -> list[int]:
    try:
        return model.tokenize(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise StrataError(f"{path} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise StrataError(f"{path} is not UTF-8 text (byte {error.start})") from error


def _follow(network: "Network", ids: list[int], rows: int) -> None:
    """The text's own tokens, so many at a time."""
    state, first = network.new_state(), min(PROMPT, len(ids) // 2)
    network.read(state, ids[:first])
    for i in range(first, len(ids), rows):
        piece = ids[i : i + rows]
        done = network.window([(state, piece)])
        network.ops.check()
        network.commit(state, done[0], len(piece))


def _answer(network: "Network", ids: list[int], model: "Model", tokens: int) -> None:
    from strata.engine import Drafting, generate

    head: dict[str, Any] = {"depth": 7, "measured": True, "lookup": True, "head": network.drafts}
    for _ in generate(
        network, network.new_state(), ids, model.sampling, stop_ids=(), max_tokens=tokens, drafting=Drafting(**head)
    ):
        pass
