"""The byte alphabet of GPT-2 vocabularies: every byte value has one printable character.

A byte-level vocabulary stores its entries as ordinary strings, so bytes without a printable character of their own
(controls, space, the gaps of Latin-1) are written as the characters from U+0100 on, in order.
"""

from strata.errors import TextError

_PRINTABLE = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}


def _characters() -> tuple[str, ...]:
    stand_ins = iter(range(0x100, 0x200))
    return tuple(chr(byte if byte in _PRINTABLE else next(stand_ins)) for byte in range(256))


CHARACTERS = _characters()
"""The character of each byte value; 256 different ones."""

_BYTE_OF = {ord(character): byte for byte, character in enumerate(CHARACTERS)}


def to_bytes(entry: str) -> bytes:
    """The bytes that a vocabulary entry stands for.

    Args:
        entry: A normal entry of a byte-level vocabulary, written in the byte alphabet.

    Raises:
        TextError: A character of ``entry`` is not in the alphabet.
    """
    try:
        return bytes([_BYTE_OF[ord(character)] for character in entry])
    except KeyError as missing:
        character = chr(missing.args[0])
        raise TextError(
            f"The vocabulary entry {entry!r} has the character {character!r} (U+{ord(character):04X}), which is not in "
            "the byte alphabet of byte-level vocabularies."
        ) from missing
