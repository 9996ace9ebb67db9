"""Usage, timings and errors in OpenAI's and llama.cpp's words."""

from collections.abc import Sequence
from typing import Any

from strata.server.errors import ApiError
from strata.server.turn import Answering


def usage(answers: Sequence[Answering], prompts: int = 1) -> dict[str, Any]:
    """Tokens of a request; the prompt counts whole, and once for all answers to it.

    Args:
        answers: all of the request.
        prompts: how many prompts it has; answers to one prompt stand together.
    """
    each = max(1, len(answers) // max(1, prompts))
    firsts = [answer.usage for answer in answers[::each]]
    prompt, cached = sum(first.prompt for first in firsts), sum(first.cached for first in firsts)
    generated = sum(answer.usage.generated for answer in answers)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": generated,
        "total_tokens": prompt + generated,
        "prompt_tokens_details": {"cached_tokens": cached},
        "completion_tokens_details": {"reasoning_tokens": sum(answer.reasoned for answer in answers)},
    }


def timings(answer: Answering) -> dict[str, Any]:
    """How long an answer took, in the words of llama.cpp; what was known already counts for no speed."""
    took = answer.usage
    read, said = took.prompt - took.cached, took.generated
    reading, decoding = took.reading_s * 1000, took.decoding_s * 1000
    return {
        "cache_n": took.cached,
        "prompt_n": read,
        "prompt_ms": reading,
        "prompt_per_token_ms": reading / read if read else 0.0,
        "prompt_per_second": read / took.reading_s if took.reading_s > 0 else 0.0,
        "predicted_n": said,
        "predicted_ms": decoding,
        "predicted_per_token_ms": decoding / said if said else 0.0,
        "predicted_per_second": (said - 1) / took.decoding_s if said > 1 and took.decoding_s > 0 else 0.0,
        "draft_n": took.drafted,
        "draft_n_accepted": took.accepted,
    }


def error_body(error: ApiError) -> dict[str, Any]:
    """An error in OpenAI's form."""
    return {"error": {"message": str(error), "type": error.type, "param": error.param, "code": error.code}}


def finish_reason(answer: Answering) -> str:
    """Why an answer ended: an answer that was cut off has not called, whatever it had begun."""
    if answer.reason == "stop":
        return "tool_calls" if answer.calls else "stop"
    return "length"
