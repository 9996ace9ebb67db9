"""All routes, each with what answers it."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from strata.server.body import LARGE, read_object
from strata.server.desk import Desk
from strata.server.dialects.anthropic.count import count
from strata.server.dialects.anthropic.reply import MessageWriter
from strata.server.dialects.anthropic.request import read_message
from strata.server.dialects.native import health, tokens, vram
from strata.server.dialects.openai.chat import read_chat
from strata.server.dialects.openai.chat_reply import ChatWriter
from strata.server.dialects.openai.completions import read_completion
from strata.server.dialects.openai.completions_reply import CompletionWriter
from strata.server.dialects.responses.reply import ResponseWriter
from strata.server.dialects.responses.request import read_response
from strata.server.errors import ApiError
from strata.server.fleet import routes as fleet
from strata.server.metrics import CONTENT_TYPE
from strata.server.monitor import routes as monitor
from strata.server.openapi import document
from strata.server.rendering import counted
from strata.server.replying import json_response

_Given = ParamSpec("_Given")
_Read = TypeVar("_Read")
Handler = Callable[[Request, Desk], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Route:
    """One address.

    Attributes:
        method: of HTTP.
        path: without a last slash.
        handler: answers.
        aliases: other paths that are the same.
    """

    method: str
    path: str
    handler: Handler
    aliases: tuple[str, ...] = ()


def _client(request: Request) -> str:
    client: str = request.scope.get("state", {}).get("client", "")
    return client


async def _aside(request: Request, read: Callable[_Given, _Read], *given: _Given.args, **more: _Given.kwargs) -> _Read:
    """Read a request; a large one in a thread, so that the others go on."""
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) <= LARGE:
        return read(*given, **more)
    return await asyncio.to_thread(read, *given, **more)


async def chat(request: Request, desk: Desk) -> Response:
    """OpenAI's chat."""
    body = await read_object(request, desk.options)
    served = await desk.model(request, body.get("model"))
    ask, wishes = await _aside(request, read_chat, body, desk.rules(served), _client(request))
    writer = ChatWriter(served, ask.tools.custom, wishes, shown=ask.thinking.shown)
    return await desk.answer(request, served, ask, writer)


async def completions(request: Request, desk: Desk) -> Response:
    """OpenAI's continuation of texts."""
    body = await read_object(request, desk.options)
    served = await desk.model(request, body.get("model"))
    desk.demand(served)
    context = None if served.known is None else served.known.context
    read = await asyncio.to_thread(
        read_completion, body, served.tokenizer, served.vocabulary, desk.rules(served), _client(request), context
    )
    ask, wishes, echo = read
    writer = CompletionWriter(served, wishes, echo=echo, prompts=len(ask.prompts))
    return await desk.answer(request, served, ask, writer)


async def messages(request: Request, desk: Desk) -> Response:
    """Anthropic's messages."""
    body = await read_object(request, desk.options)
    served = await desk.model(request, body.get("model"))
    ask = await _aside(request, read_message, body, desk.rules(served), _client(request))
    return await desk.answer(request, served, ask, MessageWriter(served, ask))


async def count_tokens(request: Request, desk: Desk) -> Response:
    """Anthropic's count of a prompt's tokens."""
    body = await read_object(request, desk.options)
    served = await desk.model(request, body.get("model"))
    desk.demand(served)
    return json_response(await asyncio.to_thread(count, body, served, desk.rules(served)))


async def responses(request: Request, desk: Desk) -> Response:
    """OpenAI's responses."""
    body = await read_object(request, desk.options)
    served = await desk.model(request, body.get("model"))
    ask, echo = await _aside(request, read_response, body, desk.rules(served), _client(request), desk.responses)
    return await desk.answer(request, served, ask, ResponseWriter(served, ask, echo, desk.responses))


async def count_input(request: Request, desk: Desk) -> Response:
    """OpenAI's count of a response's input."""
    body = await read_object(request, desk.options)
    served = await desk.model(request, body.get("model"))
    desk.demand(served)
    ask, _ = await _aside(request, read_response, body, desk.rules(served), _client(request), desk.responses)
    count = await asyncio.to_thread(counted, served, ask, desk.rules(served))
    return json_response({"object": "response.input_tokens", "input_tokens": count})


async def one_response(request: Request, desk: Desk) -> Response:
    """A response that was kept."""
    return json_response(desk.responses.get(request.path_params["name"], _client(request)))


async def forget_response(request: Request, desk: Desk) -> Response:
    """Keep it no longer."""
    return json_response(desk.responses.delete(request.path_params["name"], _client(request)))


async def embeddings(request: Request, desk: Desk) -> Response:
    """There are none."""
    await read_object(request, desk.options)
    raise ApiError(501, "this server computes no embeddings; no model that it runs has any", code="not_implemented")


async def tokenize(request: Request, desk: Desk) -> Response:
    """Text or conversation to tokens."""
    body = await read_object(request, desk.options)
    served = await desk.model(request, body.get("model"))
    desk.demand(served)
    return json_response(await asyncio.to_thread(tokens.tokenize, body, served, desk.rules(served)))


async def detokenize(request: Request, desk: Desk) -> Response:
    """Tokens to text."""
    body = await read_object(request, desk.options)
    served = await desk.model(request, body.get("model"))
    return json_response(await asyncio.to_thread(tokens.detokenize, body, served, desk.rules(served)))


async def resize(request: Request, desk: Desk) -> Response:
    """Give memory of the GPU back, or take it again, while the model runs."""
    body = await read_object(request, desk.options)
    wanted = vram.read(body, desk.options)
    served = await desk.model(request, body.get("model"))
    if served.awaited:
        served.demand()
    return json_response(await vram.resize(wanted, served))


async def list_models(_request: Request, desk: Desk) -> Response:
    """What is served."""
    return json_response(health.models(desk.fleet))


async def one_model(request: Request, desk: Desk) -> Response:
    """One of it."""
    name = request.path_params["name"]
    served = desk.fleet.find(name)
    if served is None:
        known = ", ".join(repr(one.name) for one in desk.fleet.all)
        raise ApiError(404, f"there is no model {name[:100]!r} here; there is {known[:1000]}", code="model_not_found")
    return json_response(health.model(desk.fleet, served))


async def healthy(_request: Request, desk: Desk) -> Response:
    """Whether a request would be answered now."""
    status, told = (503, {"status": "ending"}) if desk.ending else health.health(desk.fleet)
    return json_response(told, status, {"retry-after": "1"} if status == 503 else None)


async def live(_request: Request, _desk: Desk) -> Response:
    """Whether the server is there."""
    return json_response({"status": "ok"})


async def metrics(_request: Request, desk: Desk) -> Response:
    """Numbers for Prometheus."""
    return PlainTextResponse(desk.metrics.text(), media_type=CONTENT_TYPE)


async def props(request: Request, desk: Desk) -> Response:
    """What is served and how; `?model=NAME` says which."""
    return json_response(health.props(desk, await desk.model(request, request.query_params.get("model"))))


async def slots(request: Request, desk: Desk) -> Response:
    """How many conversations are computed; `?model=NAME` says of which."""
    return json_response(health.slots(await desk.model(request, request.query_params.get("model"))))


async def openapi(_request: Request, desk: Desk) -> Response:
    """These routes, described for machines."""
    known = [(route.method, route.path, (route.handler.__doc__ or "").partition("\n")[0]) for route in ROUTES]
    known = [one for one in known if one[1] != "/v1/embeddings"]  # which is no more than a refusal
    return json_response(document(known, keyed=bool(desk.options.keys)))


ROUTES: tuple[Route, ...] = (
    Route("POST", "/v1/chat/completions", chat, ("/chat/completions",)),
    Route("POST", "/v1/completions", completions, ("/completions",)),
    Route("POST", "/v1/responses", responses, ("/responses",)),
    Route("POST", "/v1/responses/input_tokens", count_input, ("/responses/input_tokens",)),
    Route("GET", "/v1/responses/{name}", one_response),
    Route("DELETE", "/v1/responses/{name}", forget_response),
    Route("POST", "/v1/messages", messages),
    Route("POST", "/v1/messages/count_tokens", count_tokens),
    Route("POST", "/v1/embeddings", embeddings, ("/embeddings",)),
    Route("GET", "/v1/models", list_models, ("/models",)),
    Route("GET", "/v1/models/{name:path}", one_model, ("/models/{name:path}",)),
    Route("POST", "/v1/models/load", fleet.load, ("/models/load",)),
    Route("POST", "/v1/models/unload", fleet.unload, ("/models/unload",)),
    Route("POST", "/tokenize", tokenize, ("/v1/tokenize",)),
    Route("POST", "/detokenize", detokenize, ("/v1/detokenize",)),
    Route("GET", "/health", healthy, ("/v1/health",)),
    Route("GET", "/live", live),
    Route("GET", "/metrics", metrics),
    Route("GET", "/v1/strata/status", monitor.status),
    Route("GET", "/v1/strata/events", monitor.events),
    Route("GET", "/v1/strata/trace", monitor.trace),
    Route("POST", "/v1/strata/vram", resize),
    Route("GET", "/props", props),
    Route("GET", "/slots", slots),
    Route("GET", "/openapi.json", openapi),
)
"""Whatever is added here needs a key like all others; the page's files, which need none, are in `strata.server.web`."""
