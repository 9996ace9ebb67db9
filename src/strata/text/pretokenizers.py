"""Split patterns by the name a GGUF file gives (``tokenizer.ggml.pre``).

A text is cut by the pattern first, and merges never cross a cut: with the wrong pattern a model reads other tokens
than it was trained on. So an unknown name is an error, never a guess.
"""

from strata.errors import TextError

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"

PATTERNS = {
    # Model specification, section 15: digits one by one, combining marks join letters.
    "qwen35": (
        _CONTRACTIONS
        + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
    # The older pattern without \p{M}: a combining mark counts as punctuation.
    "qwen2": _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
}
"""Name to regular expression (needs Unicode classes and look-ahead)."""


def pattern(name: object) -> str:
    """The split pattern with this name.

    Raises:
        TextError: There is no such name.
    """
    if not isinstance(name, str) or name not in PATTERNS:
        raise TextError(
            f"tokenizer.ggml.pre is {name!r}; known pre-tokenizers are {', '.join(sorted(PATTERNS))}. "
            "A guess would split text differently than the model was trained on, so the file cannot be used."
        )
    return PATTERNS[name]
