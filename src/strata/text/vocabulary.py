"""Reading a byte-level BPE vocabulary out of GGUF metadata, and refusing what does not fit together."""

import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import index
from typing import Any, cast

from strata.errors import TextError
from strata.text.alphabet import CHARACTERS, to_bytes
from strata.text.pretokenizers import pattern

NORMAL, CONTROL, USER_DEFINED, UNUSED = 1, 3, 4, 5
"""Values of ``tokenizer.ggml.token_type`` that a byte-level vocabulary may have."""

_KEY = "tokenizer.ggml."


@dataclass(frozen=True)
class Vocabulary:
    """A checked vocabulary; ``entries`` and ``merges`` are only needed to build the BPE model.

    Attributes:
        size: Number of ids, padding entries included.
        pattern: Split pattern of the pre-tokenizer.
        entries: Text to id of normal (byte alphabet) and user-defined (plain) entries.
        merges: Pairs of entries, best first.
        control: Text to id of control tokens.
        user_defined: Text to id of tokens that are matched in any text.
        unused: Ids that must never be produced.
        named_stop_ids: Stop ids that the file names (``eos_token_id``).
    """

    size: int
    pattern: str
    entries: dict[str, int]
    merges: list[tuple[str, str]]
    control: dict[str, int]
    user_defined: dict[str, int]
    unused: frozenset[int]
    named_stop_ids: tuple[int, ...]


def read_vocabulary(metadata: Mapping[str, object]) -> Vocabulary:
    """Read the ``tokenizer.ggml.*`` keys (GGUF tensors specification, section 2).

    Raises:
        TextError: A key is missing or has a value that does not fit; the text names the key.
    """
    model = _get(metadata, "model")
    if not isinstance(model, str) or model != "gpt2":
        raise TextError(f'{_KEY}model is {reprlib.repr(model)}; only byte-level BPE ("gpt2") can be read.')
    begins = metadata.get(_KEY + "add_bos_token", False)
    if begins is not False:
        raise TextError(
            f"{_KEY}add_bos_token is {reprlib.repr(begins)}, not false; prompts of a supported model begin without "
            "such a token."
        )
    split = pattern(_get(metadata, "pre"))
    tokens = _strings(metadata, "tokens")
    types = _types(metadata, len(tokens))
    groups = _group(tokens, types)
    entries = {**groups[NORMAL], **groups[USER_DEFINED]}
    _check_alphabet(groups[NORMAL])
    return Vocabulary(
        size=len(tokens),
        pattern=split,
        entries=entries,
        merges=_merges(metadata, entries),
        control=groups[CONTROL],
        user_defined=groups[USER_DEFINED],
        unused=frozenset(number for number, kind in enumerate(types) if kind == UNUSED),
        named_stop_ids=_stop_ids(metadata, types),
    )


def read_control_texts(metadata: Mapping[str, object]) -> tuple[str, ...]:
    """The texts of the control tokens alone, without checking the rest of the vocabulary.

    Raises:
        TextError: The token list or the type list is missing or does not fit.
    """
    tokens = _strings(metadata, "tokens")
    types = _types(metadata, len(tokens))
    return tuple(tokens[number] for number, kind in enumerate(types) if kind == CONTROL)


def _get(metadata: Mapping[str, object], name: str) -> object:
    try:
        return metadata[_KEY + name]
    except KeyError as missing:
        raise TextError(f"The metadata has no {_KEY}{name}; without it there is no tokenizer.") from missing


def _strings(metadata: Mapping[str, object], name: str) -> Sequence[str]:
    values = _get(metadata, name)
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise TextError(f"{_KEY}{name} is a {type(values).__name__}; expected an array of strings.")
    if set(map(type, values)) - {str}:
        place, value = next((place, value) for place, value in enumerate(values) if type(value) is not str)
        raise TextError(f"{_KEY}{name}[{place}] is a {type(value).__name__}; expected a string.")
    if not values and name == "tokens":
        raise TextError(f"{_KEY}tokens is empty.")
    return values


def _types(metadata: Mapping[str, object], count: int) -> list[int]:
    values = _get(metadata, "token_type")
    try:
        # An array's own tolist is many times faster than one scalar object for each entry.
        plain: Any = values.tolist() if hasattr(values, "tolist") else values
        types = [index(value) for value in plain]
    except TypeError as wrong:
        raise TextError(f"{_KEY}token_type is not an array of integers: {wrong}.") from wrong
    if len(types) != count:
        raise TextError(f"{_KEY}token_type has {len(types)} entries; {_KEY}tokens has {count}.")
    return types


def _group(tokens: Sequence[str], types: list[int]) -> dict[int, dict[str, int]]:
    """Text to id by type; a text may occur once only among the entries in use."""
    strange = set(types) - {NORMAL, CONTROL, USER_DEFINED, UNUSED}
    if strange:
        number = next(number for number, kind in enumerate(types) if kind in strange)
        raise TextError(
            f"{_KEY}token_type[{number}] is {types[number]}; a byte-level vocabulary has normal (1), control (3), "
            "user-defined (4) and unused (5) entries."
        )
    typed = list(enumerate(zip(tokens, types, strict=True)))
    groups = {
        kind: {token: number for number, (token, has) in typed if has == kind}
        for kind in (NORMAL, CONTROL, USER_DEFINED)
    }
    used = groups[NORMAL] | groups[CONTROL] | groups[USER_DEFINED]
    if "" in used:
        raise TextError(f"{_KEY}tokens[{used['']}] is an empty string.")
    if len(used) != len(types) - types.count(UNUSED):
        seen: dict[str, int] = {}
        for number, (token, kind) in typed:
            first = number if kind == UNUSED else seen.setdefault(token, number)
            if first != number:
                raise TextError(f"{_KEY}tokens has {token!r} twice, at {first} and {number}.")
    return groups


def _check_alphabet(normal: dict[str, int]) -> None:
    missing = [byte for byte, character in enumerate(CHARACTERS) if character not in normal]
    if missing:
        raise TextError(
            f"{_KEY}tokens has no normal entry for {len(missing)} of the 256 single bytes, the first of them "
            f"0x{missing[0]:02X}; some texts could not be encoded."
        )
    if not set().union(*normal) <= set(CHARACTERS):
        for token, number in normal.items():
            try:
                to_bytes(token)
            except TextError as wrong:
                raise TextError(f"{_KEY}tokens[{number}] is not byte-level: {wrong}") from wrong


def _merges(metadata: Mapping[str, object], entries: dict[str, int]) -> list[tuple[str, str]]:
    written = _strings(metadata, "merges")
    pairs = [tuple(merge.split(" ")) for merge in written]
    if set(map(len, pairs)) - {2} or "" in map(min, pairs):
        place = next(place for place, pair in enumerate(pairs) if len(pair) != 2 or "" in pair)
        raise TextError(f"{_KEY}merges[{place}] is {written[place]!r}; expected two entries with a space between them.")
    known = entries.__contains__
    if not all(map(known, map("".join, pairs))) or not all(map(known, chain.from_iterable(pairs))):
        for place, (left, right) in enumerate(pairs):
            unknown = [text for text in (left, right, left + right) if text not in entries]
            if unknown:
                raise TextError(
                    f"{_KEY}merges[{place}] is {written[place]!r}, but {unknown[0]!r} is not a normal entry of "
                    f"{_KEY}tokens."
                )
    return cast("list[tuple[str, str]]", pairs)


def _stop_ids(metadata: Mapping[str, object], types: list[int]) -> tuple[int, ...]:
    value = metadata.get(_KEY + "eos_token_id")
    if value is None:
        return ()
    try:
        number = index(value)  # type: ignore[arg-type]  # not an integer: a TypeError, below
    except TypeError as wrong:
        raise TextError(f"{_KEY}eos_token_id is {reprlib.repr(value)}; expected a token id.") from wrong
    if not 0 <= number < len(types) or types[number] == UNUSED:
        raise TextError(f"{_KEY}eos_token_id is {number}; expected the id of a used entry, below {len(types)}.")
    return (number,)
