"""A vocabulary without sense for random weights: any text can be read and any answer shown, by the usual commands."""

import numpy as np

from strata.errors import StrataError
from strata.gguf.encode import Writable
from strata.text.alphabet import CHARACTERS
from strata.text.vocabulary import CONTROL, NORMAL

EOS = 248044
"""Of the released model; a smaller vocabulary ends with its control tokens."""

CONTROLS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")

LETTERS, WORD = "abcdefghijklmnopqrstuvwxyz", 4

TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def first_control(size: int) -> int:
    """Id of the first control token, the one that n-grams begin after.

    Raises:
        StrataError: so few tokens cannot spell every text.
    """
    least, most = len(CHARACTERS) + len(CONTROLS), len(CHARACTERS) + len(LETTERS) ** WORD
    if not least <= size <= most:
        raise StrataError(f"a vocabulary has {least} to {most} tokens, not {size}: all bytes, and what ends a turn")
    return min(EOS, size - len(CONTROLS))


def tokens(size: int) -> list[str]:
    """Entries in the byte alphabet: the 256 bytes, then words of four letters behind a space; three are controls."""
    found = [*CHARACTERS, *(CHARACTERS[ord(" ")] + _word(number) for number in range(size - len(CHARACTERS)))]
    first = first_control(size)
    found[first : first + len(CONTROLS)] = CONTROLS
    return found


def vocabulary(size: int) -> dict[str, Writable]:
    """Keys of a header. No merges: a text becomes one token a byte, an answer any of them."""
    first = first_control(size)
    types = np.full(size, NORMAL, np.int32)
    types[first : first + len(CONTROLS)] = CONTROL
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen35",
        "tokenizer.ggml.tokens": tokens(size),
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.merges": [],
        "tokenizer.ggml.eos_token_id": first + CONTROLS.index("<|im_end|>"),
        "tokenizer.chat_template": TEMPLATE,
    }


def _word(number: int) -> str:
    """Letters of a number, the last changing fastest."""
    count = len(LETTERS)
    return "".join(LETTERS[number // count**place % count] for place in reversed(range(WORD)))
