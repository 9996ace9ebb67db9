"""Output items of a response, and the events that tell how they come to be."""

import secrets
from typing import Any

from strata.api.reply import Chosen, Event, Finished
from strata.server.ask import Ask
from strata.server.dialects.openai import logprobs
from strata.server.dialects.openai.chat_reply import call_id
from strata.server.dialects.openai.custom import PlainInput
from strata.server.dialects.responses.request import Echo
from strata.server.sealed import seal
from strata.server.turn import Answering
from strata.text import Content, Reasoning, Tokenizer, ToolCallArguments, ToolCallEnd, ToolCallStart

_TAGS = ("<think>", "</think>", "<tool_call>", "</tool_call>")


class Output:
    """Items in order: thoughts, text, calls.

    Attributes:
        items: those that are complete, and those that were cut off.
    """

    def __init__(self, tokenizer: Tokenizer, ask: Ask, echo: Echo) -> None:
        self.items: list[dict[str, Any]] = []
        self._tokenizer, self._ask, self._echo = tokenizer, ask, echo
        self._tags = frozenset(filter(None, map(tokenizer.id_of, _TAGS)))
        self._item: dict[str, Any] | None = None  # the open one
        self._text: list[str] = []
        self._chosen: list[Chosen] = []
        self._whole_call = False
        self._input = PlainInput()

    def take(self, answer: Answering, events: list[Event]) -> list[dict[str, Any]]:
        """The events of a stream that tell of these."""
        told: list[dict[str, Any]] = []
        for event in events:
            match event:
                case Chosen():
                    self._chosen.append(event)
                case Reasoning():
                    told += self._thought(event.text)
                case Content():
                    told += self._said(event.text)
                case ToolCallStart():
                    told += self._called(event.name)
                case ToolCallArguments():
                    told += self._argued(event.json_fragment)
                case ToolCallEnd():
                    self._whole_call = True
                    told += self._close(whole=True)
                case Finished():
                    told += self._close(whole=answer.reason == "stop")
        return told

    def so_far(self) -> list[dict[str, Any]]:
        """The items, the open one as far as it came."""
        if self._item is None:
            return self.items
        item, text = self._item, "".join(self._text)
        more: dict[str, Any] = {"status": "incomplete"}
        match item["type"]:
            case "reasoning":
                more["content"] = [{"type": "reasoning_text", "text": text}] if self._ask.thinking.shown else []
            case "message":
                part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
                more["content"] = [part]
            case "function_call":
                more["arguments"] = text
            case _:
                more["input"] = text
        return [*self.items, {**item, **more}]

    def _thought(self, text: str) -> list[dict[str, Any]]:
        told: list[dict[str, Any]] = []
        if self._item is None or self._item["type"] != "reasoning":
            told += self._close(whole=True)
            item = {"type": "reasoning", "id": _name("rs"), "summary": [], "content": [], "status": "in_progress"}
            told += self._open(item)
            if self._ask.thinking.shown:
                told.append(self._part("added", {"type": "reasoning_text", "text": ""}))
        self._text.append(text)
        if self._ask.thinking.shown:
            told.append(self._of("response.reasoning_text.delta", content_index=0, delta=text))
        return told

    def _said(self, text: str) -> list[dict[str, Any]]:
        told: list[dict[str, Any]] = []
        if self._item is None or self._item["type"] != "message":
            told += self._close(whole=True)
            item = {"type": "message", "id": _name("msg"), "role": "assistant", "status": "in_progress", "content": []}
            told += self._open(item)
            told.append(self._part("added", {"type": "output_text", "text": "", "annotations": [], "logprobs": []}))
        self._text.append(text)
        told.append(self._of("response.output_text.delta", content_index=0, delta=text, logprobs=[]))
        return told

    def _called(self, name: str) -> list[dict[str, Any]]:
        told = self._close(whole=True)
        custom = name in self._ask.tools.custom
        item: dict[str, Any] = {
            "type": "custom_tool_call" if custom else "function_call",
            "id": _name("ctc" if custom else "fc"),
            "call_id": call_id(),
            "name": name,
            "input" if custom else "arguments": "",
            "status": "in_progress",
        }
        if name in self._echo.spaces:
            item["namespace"] = self._echo.spaces[name]
        self._whole_call = False
        self._input = PlainInput()
        return [*told, *self._open(item)]

    def _argued(self, fragment: str) -> list[dict[str, Any]]:
        assert self._item is not None
        if self._item["type"] == "custom_tool_call":
            return self._put(self._input.push(fragment))
        self._text.append(fragment)
        return [self._of("response.function_call_arguments.delta", delta=fragment)]

    def _put(self, text: str) -> list[dict[str, Any]]:
        """More of a custom tool's input."""
        if not text:
            return []
        self._text.append(text)
        return [self._of("response.custom_tool_call_input.delta", delta=text)]

    def _open(self, item: dict[str, Any]) -> list[dict[str, Any]]:
        self._item = item
        index = len(self.items)
        return [{"type": "response.output_item.added", "output_index": index, "item": dict(item)}]

    def _close(self, *, whole: bool) -> list[dict[str, Any]]:
        item, text = self._item, "".join(self._text)
        if item is None:
            return []
        told: list[dict[str, Any]] = []
        match item["type"]:
            case "reasoning":
                told += self._close_thought(item, text)
            case "message":
                told += self._close_text(item, text)
            case "function_call":
                item["arguments"] = text
                told.append(self._of("response.function_call_arguments.done", name=item["name"], arguments=text))
                whole = whole and self._whole_call
            case _:
                told += self._put(rest := self._input.end())
                item["input"] = text + rest
                told.append(self._of("response.custom_tool_call_input.done", input=item["input"]))
                whole = whole and self._whole_call
        item["status"] = "completed" if whole else "incomplete"
        told.append({"type": "response.output_item.done", "output_index": len(self.items), "item": item})
        self.items.append(item)
        self._item = None
        self._text.clear()
        # That something has ended may be known some tokens later; those behind its last tag belong to what follows.
        last = max((place for place, token in enumerate(self._chosen) if token.id in self._tags), default=-1)
        del self._chosen[: last + 1]
        return told

    def _spoken(self) -> list[Chosen]:
        """The tokens of the open message: the first between two tags that are more than white space."""
        runs: list[list[Chosen]] = [[]]
        for token in self._chosen:
            if token.id in self._tags:
                runs.append([])
            elif runs[-1] or token.bytes.strip():
                runs[-1].append(token)
        return next((run for run in runs if run), [])

    def _close_thought(self, item: dict[str, Any], text: str) -> list[dict[str, Any]]:
        if self._echo.sealed:
            item["encrypted_content"] = seal(text)
        if not self._ask.thinking.shown:
            return []
        part = {"type": "reasoning_text", "text": text}
        item["content"] = [part]
        done = self._of("response.reasoning_text.done", content_index=0, text=text)
        return [done, self._part("done", part)]

    def _close_text(self, item: dict[str, Any], text: str) -> list[dict[str, Any]]:
        probable = logprobs.of_chat(self._spoken(), self._tokenizer)
        part = {"type": "output_text", "text": text, "annotations": [], "logprobs": probable}
        item["content"] = [part]
        done = self._of("response.output_text.done", content_index=0, text=text, logprobs=probable)
        return [done, self._part("done", part)]

    def _of(self, kind: str, **more: Any) -> dict[str, Any]:
        assert self._item is not None
        return {"type": kind, "item_id": self._item["id"], "output_index": len(self.items), **more}

    def _part(self, what: str, part: dict[str, Any]) -> dict[str, Any]:
        return self._of(f"response.content_part.{what}", content_index=0, part=part)


def _name(kind: str) -> str:
    return f"{kind}_{secrets.token_hex(24)}"
