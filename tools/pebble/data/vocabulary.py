"""The tokenizer: byte-level BPE with the family's split pattern, 2,534 entries and 26 added tokens."""

from collections.abc import Iterable

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
BASE = 2534
# In the family's order from <|endoftext|> on; False: user-defined, matched in any text and shown when decoding.
ADDED = (
    ("<|endoftext|>", True),
    ("<|im_start|>", True),
    ("<|im_end|>", True),
    ("<|object_ref_start|>", True),
    ("<|object_ref_end|>", True),
    ("<|box_start|>", True),
    ("<|box_end|>", True),
    ("<|quad_start|>", True),
    ("<|quad_end|>", True),
    ("<|vision_start|>", True),
    ("<|vision_end|>", True),
    ("<|vision_pad|>", True),
    ("<|image_pad|>", True),
    ("<|video_pad|>", True),
    ("<tool_call>", False),
    ("</tool_call>", False),
    ("<|fim_prefix|>", True),
    ("<|fim_middle|>", True),
    ("<|fim_suffix|>", True),
    ("<|fim_pad|>", True),
    ("<|repo_name|>", True),
    ("<|file_sep|>", True),
    ("<tool_response>", False),
    ("</tool_response>", False),
    ("<think>", False),
    ("</think>", False),
)
ENDOFTEXT, IM_END = BASE, BASE + 2


def train(texts: Iterable[str]) -> Tokenizer:
    """Learn the merges from ``texts`` (without control tokens) and append the added tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PATTERN), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=BASE, initial_alphabet=alphabet, show_progress=False, min_frequency=2)
    tokenizer.train_from_iterator(texts, trainer)
    if tokenizer.get_vocab_size() != BASE:
        raise ValueError(f"the texts support only {tokenizer.get_vocab_size()} entries, not {BASE}")
    for text, special in ADDED:
        token = AddedToken(text, special=special, normalized=False)
        tokenizer.add_special_tokens([token]) if special else tokenizer.add_tokens([token])
    return tokenizer


def plain_words(tokenizer: Tokenizer) -> list[str]:
    """Entries that are a space and letters and survive a round trip: "random ids" that are also text."""
    found = []
    for index in range(BASE):
        text = tokenizer.decode([index])
        word = len(text) > 2 and text[0] == " " and text[1:].isascii() and text[1:].isalpha()
        if word and tokenizer.encode(text + text).ids == [index, index]:
            found.append(text)
    return found
