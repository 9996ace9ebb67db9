"""Requests in the shapes that people's tools send, written from what is publicly known of them."""

from typing import Any

from support.site import call

READ = {
    "type": "object",
    "properties": {"path": {"type": "string"}},
    "required": ["path"],
    "additionalProperties": False,
    "$schema": "http://json-schema.org/draft-07/schema#",
}
BASH = {
    "type": "object",
    "properties": {"command": {"type": "string"}, "timeout": {"type": "number"}},
    "required": ["command"],
}
SAID = "t</think>\n\nOk.\n\n" + call("Read", path="/tmp/a")


def claude_code() -> dict[str, Any]:
    """The main loop of Claude Code: blocks with cache marks, thinking, context management, a beta query."""
    ephemeral = {"type": "ephemeral"}
    return {
        "model": "claude-opus-4-6",
        "max_tokens": 32000,
        "stream": True,
        "system": [
            {
                "type": "text",
                "text": "x-anthropic-billing-header: cc_version=2.1.30.abc; cc_entrypoint=cli; cch=00000;",
            },
            {
                "type": "text",
                "text": "You are Claude Code, Anthropic's official CLI for Claude.",
                "cache_control": ephemeral,
            },
            {
                "type": "text",
                "text": "\nYou are an interactive agent.\n\n# Environment\nToday's date: 2026-11-30",
                "cache_control": {**ephemeral, "ttl": "1h"},
            },
        ],
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "<system-reminder>\nbe careful\n</system-reminder>"},
                    {"type": "text", "text": "read a"},
                ],
            },
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "I read it.", "signature": "EqQBCkYIBBgCKkD"},
                    {
                        "type": "tool_use",
                        "id": "toolu_01",
                        "name": "Read",
                        "input": {"path": "/tmp/a"},
                        "caller": {"type": "direct"},
                    },
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "tool_use_id": "toolu_01",
                        "type": "tool_result",
                        "content": [{"type": "text", "text": "1\thello"}],
                        "is_error": False,
                        "cache_control": ephemeral,
                    },
                ],
            },
        ],
        "tools": [
            {"name": "Read", "description": "Reads a file.", "input_schema": READ, "eager_input_streaming": True},
            {"name": "Bash", "description": "Runs a command.", "input_schema": BASH, "cache_control": ephemeral},
        ],
        "thinking": {"type": "adaptive"},
        "output_config": {"effort": "high"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "metadata": {"user_id": "user_abc_account__session_def"},
        "temperature": 1,
    }


def claude_code_title() -> dict[str, Any]:
    """Its small requests on the side: no tools, a form, thinking off."""
    schema = {
        "type": "object",
        "properties": {"title": {"type": "string"}},
        "required": ["title"],
        "additionalProperties": False,
    }
    return {
        "model": "claude-haiku-4-5",
        "max_tokens": 32000,
        "stream": True,
        "system": [{"type": "text", "text": "Generate a short title."}],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "read a"}]}],
        "tools": [],
        "thinking": {"type": "disabled"},
        "output_config": {"format": {"type": "json_schema", "schema": schema}},
        "metadata": {"user_id": "u"},
        "temperature": 1,
    }


def codex() -> dict[str, Any]:
    """Codex: responses, free-form patches, developer messages, encrypted thoughts."""
    return {
        "model": "gpt-5.3-codex",
        "instructions": "You are Codex, a coding agent.",
        "input": [
            {
                "type": "message",
                "role": "developer",
                "content": [{"type": "input_text", "text": "<permissions instructions>"}],
            },
            {
                "type": "message",
                "role": "user",
                "content": [{"type": "input_text", "text": "<environment_context>\n<cwd>/tmp</cwd>"}],
            },
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "read a"}]},
            {
                "type": "reasoning",
                "summary": [{"type": "summary_text", "text": "thinking"}],
                "encrypted_content": "gAAAAA",
            },
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I'll look."}]},
            {"type": "function_call", "name": "Read", "arguments": '{"path":"/tmp/a"}', "call_id": "call_1"},
            {"type": "function_call_output", "call_id": "call_1", "output": "hello"},
            {
                "type": "custom_tool_call",
                "status": "completed",
                "call_id": "call_2",
                "name": "apply_patch",
                "input": "*** Begin Patch",
            },
            {"type": "custom_tool_call_output", "call_id": "call_2", "output": "Done"},
        ],
        "tools": [
            {"type": "function", "name": "Read", "description": "Reads.", "strict": False, "parameters": READ},
            {
                "type": "custom",
                "name": "apply_patch",
                "description": "Edits files.",
                "format": {"type": "grammar", "syntax": "lark", "definition": "start: begin"},
            },
            {"type": "web_search", "external_web_access": False},
            {"type": "image_generation", "output_format": "png"},
            {"type": "local_shell"},
        ],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "reasoning": {"effort": "medium", "summary": "auto"},
        "store": False,
        "stream": True,
        "include": ["reasoning.encrypted_content"],
        "service_tier": None,
        "prompt_cache_key": "0199a213",
        "text": {"verbosity": "low"},
        "client_metadata": {"x-codex-installation-id": "id"},
    }


def cline() -> dict[str, Any]:
    """Cline's generic OpenAI provider: long user texts in parts, time stamps at their end."""
    return {
        "model": "local",
        "messages": [
            {"role": "system", "content": "You are Cline."},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "<task>\nread a\n</task>"},
                    {
                        "type": "text",
                        "text": "<environment_details>\n# Current Time\n11/30/2026, 8:00:00 AM\n</environment_details>",
                    },
                ],
            },
            {
                "role": "assistant",
                "content": "I look.",
                "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "Read", "arguments": '{"path":"a"}'}}
                ],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "hello"},
        ],
        "temperature": 0,
        "max_tokens": None,
        "reasoning_effort": None,
        "stream": True,
        "stream_options": {"include_usage": True},
        "tools": [
            {
                "type": "function",
                "function": {"name": "Read", "description": "Reads.", "strict": True, "parameters": READ},
            }
        ],
        "tool_choice": "auto",
        "parallel_tool_calls": False,
    }


def open_webui() -> dict[str, Any]:
    """Open WebUI: parameters of its sliders, no tools unless chosen."""
    return {
        "stream": True,
        "model": "scripted",
        "messages": [{"role": "system", "content": "Hi."}, {"role": "user", "content": "read a"}],
        "temperature": 0.8,
        "top_p": 0.9,
        "top_k": 40,
        "min_p": 0.0,
        "frequency_penalty": 0,
        "presence_penalty": 0,
        "repeat_penalty": 1.1,
        "seed": 42,
        "stop": ["<|end|>"],
        "max_tokens": 1024,
        "logit_bias": {},
        "stream_options": {"include_usage": True},
        "reasoning_effort": "medium",
        "chat_template_kwargs": {"enable_thinking": True},
    }


def open_webui_title() -> dict[str, Any]:
    """Its requests for titles and tags."""
    return {
        "model": "scripted",
        "messages": [{"role": "user", "content": "### Task:\nGenerate a concise title."}],
        "stream": False,
        "max_completion_tokens": 1000,
        "metadata": {"task": "title_generation", "chat_id": "x"},
    }


def aider() -> dict[str, Any]:
    """aider, through litellm."""
    return {
        "model": "local",
        "messages": [
            {
                "role": "system",
                "content": [{"type": "text", "text": "Act as an expert.", "cache_control": {"type": "ephemeral"}}],
            },
            {"role": "user", "content": "I switched to a new code base."},
            {"role": "assistant", "content": "Ok."},
            {"role": "user", "content": "read a"},
        ],
        "temperature": 0,
        "stream": True,
        "reasoning_effort": "low",
        "thinking": {"type": "enabled", "budget_tokens": 2000},
    }


def langchain() -> dict[str, Any]:
    """LangChain's ChatOpenAI with bound tools, and a history that it has kept."""
    return {
        "model": "local",
        "messages": [
            {"role": "system", "content": "You are helpful."},
            {"role": "user", "content": "read a", "name": "ada"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"type": "function", "id": "c1", "function": {"name": "Read", "arguments": '{"path": "a"}'}}
                ],
                "refusal": None,
                "function_call": None,
                "annotations": [],
                "audio": None,
            },
            {"role": "tool", "tool_call_id": "c1", "content": "hello"},
        ],
        "tools": [
            {
                "type": "function",
                "function": {"name": "Read", "description": "Reads.", "parameters": READ, "strict": None},
            }
        ],
        "tool_choice": {"type": "function", "function": {"name": "Read"}},
        "parallel_tool_calls": True,
        "n": 1,
        "logprobs": False,
        "stream": False,
        "temperature": 0.7,
        "max_completion_tokens": 500,
        "user": "ada",
        "store": False,
    }


def langchain_form() -> dict[str, Any]:
    """with_structured_output."""
    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "Answer", "strict": True, "schema": schema}}
    return {"model": "local", "messages": [{"role": "user", "content": "x"}], "response_format": form, "stream": False}


SHAPES = {
    "claude_code": ("/v1/messages?beta=true", claude_code),
    "claude_code_title": ("/v1/messages?beta=true", claude_code_title),
    "codex": ("/v1/responses", codex),
    "cline": ("/v1/chat/completions", cline),
    "open_webui": ("/v1/chat/completions", open_webui),
    "open_webui_title": ("/v1/chat/completions", open_webui_title),
    "aider": ("/v1/chat/completions", aider),
    "langchain": ("/v1/chat/completions", langchain),
    "langchain_form": ("/v1/chat/completions", langchain_form),
}
