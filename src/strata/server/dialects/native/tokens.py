"""Text to tokens and back, in the forms of llama.cpp and vLLM."""

from typing import Any

from strata.server.dialects.openai.chat import read_chat
from strata.server.errors import bad
from strata.server.fields import Fields, shown
from strata.server.options import Options
from strata.server.rendering import render
from strata.server.served import Served


def tokenize(body: dict[str, Any], served: Served, options: Options) -> dict[str, Any]:
    """Tokens of a text (``content`` or ``prompt``), or of the prompt that a conversation makes (``messages``)."""
    fields = Fields(body, strict=options.strict)
    pieces = fields.flag("with_pieces")
    if "messages" in fields:
        rest = {name: value for name, value in body.items() if name not in {"with_pieces", "add_special"}}
        ask, _ = read_chat(rest, options, "")
        ids = list(render(served, ask, options).ids)
    else:
        name = "content" if "content" in fields else "prompt"
        text, special = fields.text(name), fields.flag("parse_special") or False
        if text is None:
            raise bad("tokenize needs content or prompt, a text, or messages", "content")
        fields.flag("add_special")
        fields.any("model")
        fields.end(("add_special_tokens", "return_token_strs"))
        ids = served.tokenizer.encode(text, special=special)
    tokens: list[Any] = list(ids)
    if pieces:
        tokens = [{"id": token, "piece": _piece(served.tokenizer.token_bytes(token))} for token in ids]
    ready = served.known
    return {"tokens": tokens, "count": len(ids), "max_model_len": ready.context if ready else None}


def detokenize(body: dict[str, Any], served: Served, options: Options) -> dict[str, Any]:
    """The text of tokens, control tokens shown."""
    fields = Fields(body, strict=options.strict)
    fields.any("model")
    ids = fields.items("tokens")
    if ids is None:
        raise bad("detokenize needs tokens, a list of token ids", "tokens")
    size = served.tokenizer.size
    for token in ids:
        if isinstance(token, bool) or not isinstance(token, int) or not 0 <= token < size:
            raise bad(f"tokens holds {shown(token)}; token ids are from 0 to {size - 1}", "tokens")
    fields.end()
    text = served.tokenizer.decode(ids, special=True)
    return {"content": text, "prompt": text}


def _piece(text: bytes) -> Any:
    try:
        return text.decode()
    except UnicodeDecodeError:
        return list(text)
