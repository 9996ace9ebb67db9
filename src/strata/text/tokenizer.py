"""Text to token ids and back, by the vocabulary of a GGUF file."""

import re
from collections.abc import Iterable, Mapping
from operator import index
from typing import Self

from tokenizers import AddedToken, Regex
from tokenizers import Tokenizer as Core
from tokenizers.models import BPE
from tokenizers.normalizers import NFC
from tokenizers.pre_tokenizers import ByteLevel, Split
from tokenizers.pre_tokenizers import Sequence as Steps

from strata.errors import TextError
from strata.text.alphabet import to_bytes
from strata.text.detokeniser import Detokeniser
from strata.text.prompt import Control, Prompt
from strata.text.vocabulary import Vocabulary, read_vocabulary

_STOP_TEXTS = ("<|im_end|>", "<|endoftext|>")  # model specification, section 15

_LONG = 1 << 14
"""Characters from which on a text takes long enough (16 ms) to be in the way of other threads."""


class Tokenizer:
    """Byte-level BPE with control and user-defined tokens kept apart (model specification, section 15).

    Control tokens are not known to the BPE model at all. Their ids come only from ``special=True`` and from the
    template's own markers in a `Prompt`; no text and no merge can produce them. User-defined tokens (``<think>``,
    ``<tool_call>``) are matched in any text and shown when decoding. Unused entries are never produced.

    Safe to share between threads.
    """

    def __init__(self, vocabulary: Vocabulary, *, nfc: bool = False) -> None:
        """Build the BPE model; ``vocabulary`` is not kept.

        Args:
            vocabulary: What `read_vocabulary` returned.
            nfc: Compose characters (Unicode NFC) before splitting, as the original tokenizer does. Off by default, so
                that the model reads the bytes that were typed; see docs/text.md.

        Raises:
            TextError: The vocabulary has no stop token.
        """
        core = Core(BPE(vocab=vocabulary.entries, merges=vocabulary.merges))
        split = Split(Regex(vocabulary.pattern), behavior="isolated")
        core.pre_tokenizer = Steps([split, ByteLevel(add_prefix_space=False, use_regex=False)])
        if nfc:
            core.normalizer = NFC()
        core.add_tokens([AddedToken(text, normalized=False, special=False) for text in vocabulary.user_defined])
        self._core = core
        self._control = vocabulary.control
        self._user_defined = vocabulary.user_defined
        self._control_of = {number: text for text, number in vocabulary.control.items()}
        self._user_defined_of = {number: text for text, number in vocabulary.user_defined.items()}
        self._control_pattern = _any_of(vocabulary.control)
        self._unused = vocabulary.unused
        self._size = vocabulary.size
        named = (self._control[text] for text in _STOP_TEXTS if text in self._control)
        self._stop_ids = tuple(dict.fromkeys((*vocabulary.named_stop_ids, *named)))
        if not self._stop_ids:
            raise TextError(
                f"The vocabulary names no end of a turn: there is no tokenizer.ggml.eos_token_id and none of "
                f"{', '.join(_STOP_TEXTS)} is a control token."
            )

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, object], *, nfc: bool = False) -> Self:
        """Build a tokenizer from the ``tokenizer.ggml.*`` keys of a GGUF file.

        Raises:
            TextError: A key is missing or invalid; the text names it.
        """
        return cls(read_vocabulary(metadata), nfc=nfc)

    @property
    def size(self) -> int:
        """Number of ids, unused padding entries included: the rows of the embedding."""
        return self._size

    @property
    def eos_ids(self) -> tuple[int, ...]:
        """Ids that end a turn: the file's own and those of ``<|im_end|>`` and ``<|endoftext|>``, without repeats."""
        return self._stop_ids

    @property
    def control_ids(self) -> frozenset[int]:
        """Control tokens, which no text shows."""
        return frozenset(self._control_of)

    @property
    def user_defined_ids(self) -> frozenset[int]:
        """Tokens that are matched in any text and shown, such as tags."""
        return frozenset(self._user_defined_of)

    @property
    def unused_ids(self) -> frozenset[int]:
        """Padding entries; a sampler must never choose one."""
        return self._unused

    def id_of(self, token_text: str) -> int | None:
        """The id of a control or user-defined token, or of a normal entry given in the byte alphabet."""
        number = self._control.get(token_text)
        return self._core.token_to_id(token_text) if number is None else number

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        """Token ids of a text; nothing is added at its ends. Time is linear in the length.

        Args:
            text: Any text. Control-token text in it is plain text unless ``special`` is set.
            special: Match control tokens too. Only for text from a trusted source.

        Raises:
            TextError: The text is none, or has a lone surrogate, which no UTF-8 text can hold.
        """
        if not isinstance(text, str):
            raise TextError(f"The text is a {type(text).__name__}; expected a str.")
        if not special or self._control_pattern is None:
            return self._plain(text)
        ids: list[int] = []
        # A pattern with one group alternates: text, control token, text, ..., text.
        for place, piece in enumerate(self._control_pattern.split(text)):
            if place % 2:
                ids.append(self._control[piece])
            else:
                ids += self._plain(piece)
        return ids

    def encode_prompt(self, prompt: Prompt) -> list[int]:
        """Token ids of a rendered prompt: its control pieces become control tokens, all else is plain text.

        Raises:
            TextError: The prompt has a control piece that this vocabulary lacks, or a lone surrogate.
        """
        ids: list[int] = []
        for piece in prompt.pieces:
            if not isinstance(piece, Control):
                ids += self._plain(piece)
            elif piece.text in self._control:
                ids.append(self._control[piece.text])
            else:
                raise TextError(f"The chat template writes {piece.text!r}, which is not a control token of this file.")
        return ids

    def token_bytes(self, token: int) -> bytes:
        """The bytes a token stands for; those of its text for control tokens, none for unused entries.

        Raises:
            TextError: There is no such id.
        """
        try:
            token = index(token)
        except TypeError:
            raise TextError(f"A token id is an integer, not {token!r}.") from None
        if not 0 <= token < self._size:
            raise TextError(f"Token id {token} is outside the vocabulary of {self._size} entries.")
        special = self._control_of.get(token) or self._user_defined_of.get(token)
        if special is not None:
            return special.encode()
        # None for the entries that the BPE model does not know: the unused ones.
        entry = self._core.id_to_token(token)
        return b"" if entry is None else to_bytes(entry)

    def decode(self, ids: Iterable[int], *, special: bool = False) -> str:
        """The text of a sequence of tokens; bytes that are not UTF-8 become U+FFFD.

        Args:
            ids: Token ids.
            special: Show control tokens; they are left out otherwise. User-defined tokens are always shown.

        Raises:
            TextError: An id is no integer, or outside the vocabulary.
        """
        shown = (self.token_bytes(token) for token in ids if special or token not in self._control_of)
        return b"".join(shown).decode("utf-8", errors="replace")

    def detokeniser(self, *, special: bool = False) -> Detokeniser:
        """A fresh streaming decoder that gives the same text as `decode`, piece by piece."""
        if special:
            return Detokeniser(self.token_bytes)
        return Detokeniser(lambda token: b"" if token in self._control_of else self.token_bytes(token))

    def _plain(self, text: str) -> list[int]:
        try:
            text.encode()
        except UnicodeEncodeError as wrong:
            raise TextError(
                f"The text has a lone surrogate (U+{ord(text[wrong.start]):04X}) at character {wrong.start}; "
                "it is not valid Unicode text."
            ) from wrong
        if len(text) < _LONG:
            return self._core.encode(text, add_special_tokens=False).ids
        # The same ids, but other threads go on meanwhile: only the form for batches lets go of the interpreter.
        return self._core.encode_batch_fast([text], add_special_tokens=False)[0].ids


def _any_of(texts: Iterable[str]) -> re.Pattern[str] | None:
    """A pattern that finds the longest of the texts at the first place where any of them stands."""
    longest_first = sorted(texts, key=len, reverse=True)
    return re.compile("(" + "|".join(map(re.escape, longest_first)) + ")") if longest_first else None
