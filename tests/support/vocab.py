"""A small byte-level vocabulary with the real special tokens, as GGUF metadata.

Trained in a moment from the text below, so that merges exist for English, French, Arabic, Thai, Devanagari, digits,
spaces, code and the chat format. Use `vocabulary_metadata()` where a test needs a tokenizer or a chat template.
"""

import json
from functools import lru_cache

import numpy as np
from tokenizers import Regex, Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel, Sequence, Split
from tokenizers.trainers import BpeTrainer

# The split pattern, written out here once more so that a slip in the library's table shows.
PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)

USER_DEFINED = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>")

# The order of the Qwen family, from <|endoftext|> on.
SPECIALS = (
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>", "<|box_start|>",
    "<|box_end|>", "<|quad_start|>", "<|quad_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>",
    "<|image_pad|>", "<|video_pad|>", "<tool_call>", "</tool_call>", "<|fim_prefix|>", "<|fim_middle|>",
    "<|fim_suffix|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>", "<tool_response>", "</tool_response>",
    "<think>", "</think>",
)  # fmt: skip

_TEXT = """
The quick brown fox jumps over the lazy dog. We're here, they'll see; I'd say it's what you've got. SHE'LL TOO.
Numbers: 1, 2, 3, 10, 42, 2023, 90210444. Ten spaces:          and tabs:\t\t\there.\r\nCarriage returns\r\n\r\n  too.
user assistant system tool think carefully briefly what is the weather in Rome? The answer is sun and rain.
<tool_call>
<function=get_w>
<parameter=city>
Rome
</parameter>
</function>
</tool_call>
{"type": "function", "function": {"name": "get_w", "parameters": {"type": "object", "properties": {}}}}
def encode(text: str) -> list[int]:
    for i in range(10):
        print(f"{i:>3}", end="\\n\\n")


Crème brûlée, déjà vu, à la carte, où êtes-vous. Größe, Straße, über.
مرحبا بالعالم، كيف حالك اليوم؟ السَّلامُ عَلَيْكُم
สวัสดีชาวโลก ภาษาไทยไม่มีช่องว่าง ที่นี่
नमस्ते दुनिया, हिन्दी में क्षत्रिय और ज्ञान। कैसे हैं
你好，世界。漢字かな交じり文 🙂🙂 👩‍👩‍👧‍👦 🇫🇷
!!! ??? ... --- === *** /// ((())) [[[]]] {{}} <<>> ## ## ;; "quotes" 'single'
"""


@lru_cache
def _trained(entries: int, uncut: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Entries by id and merges, best first, of a BPE model with this many entries."""
    core = Tokenizer(BPE())
    cut, bytewise = Split(Regex(PATTERN), behavior="isolated"), ByteLevel(add_prefix_space=False, use_regex=False)
    core.pre_tokenizer = bytewise if uncut else Sequence([cut, bytewise])
    trainer = BpeTrainer(vocab_size=entries, show_progress=False, initial_alphabet=ByteLevel.alphabet())
    core.train_from_iterator(uncut or [_TEXT] * 3, trainer)
    model = json.loads(core.to_str())["model"]
    tokens = tuple(sorted(model["vocab"], key=model["vocab"].__getitem__))
    return tokens, tuple(" ".join(pair) for pair in model["merges"])


def vocabulary_metadata(
    entries: int = 700, padding: int = 8, chat_template: str | None = None, *, uncut: tuple[str, ...] = ()
) -> dict[str, object]:
    """``tokenizer.*`` keys of a GGUF file.

    Args:
        entries: Base entries (256 bytes and merges); at most about 820 with this text.
        padding: Unused entries at the end.
        chat_template: Text of ``tokenizer.chat_template``; the key is absent if None.
        uncut: Train on these texts instead, each as one long word: merges go across all cuts of the pattern until a
            text is one entry, so that a tokenizer which misses a cut gives other ids.

    Returns:
        A fresh dictionary. Ids: base entries, then the 26 specials in the order of `SPECIALS`, then padding.
    """
    tokens, merges = _trained(entries, uncut)
    kinds = [4 if text in USER_DEFINED else 3 for text in SPECIALS]
    first = len(tokens)
    metadata: dict[str, object] = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen35",
        "tokenizer.ggml.tokens": [*tokens, *SPECIALS, *(f"[PAD{first + 26 + n}]" for n in range(padding))],
        "tokenizer.ggml.token_type": np.array([1] * first + kinds + [5] * padding, dtype=np.int32),
        "tokenizer.ggml.merges": list(merges),
        "tokenizer.ggml.eos_token_id": first + SPECIALS.index("<|im_end|>"),
        "tokenizer.ggml.bos_token_id": first,
        "tokenizer.ggml.padding_token_id": first,
        "tokenizer.ggml.add_bos_token": False,
    }
    if chat_template is not None:
        metadata["tokenizer.chat_template"] = chat_template
    return metadata
