"""Grammars compiled for one vocabulary."""

import hashlib
import json
import re
from collections import OrderedDict
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper
from llguidance.gbnf_to_lark import gbnf_to_lark

from strata.errors import RequestError
from strata.text.grammar.constraint import GrammarConstraint, GrammarError
from strata.text.grammar.gate import Gate
from strata.text.grammar.grammar import Grammar, Kind
from strata.text.grammar.panic import FAULT, no_panic
from strata.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from llguidance._lib import JsonCompileOptions  # only its stub has the name

_LEAD = "start: {lead} ({choices})\nLEAD: /\\n{{0,2}}/"
"""Behind a thinking block the chat template has an empty line; a model that writes it is not made to leave it out."""

_BLANKS: "JsonCompileOptions" = {"whitespace_pattern": r"[\x20\x0A\x0D\x09]{1,64}"}
"""White space between parts of JSON, where it may stand at all: without an end to it, some models never stop."""

WIDEST = 25_000
"""Ways in which a grammar may go on at one place: four for each property of an object that may come next or not."""

LARGEST = 4 << 20
"""Characters of a grammar."""

_LONGEST_REASON = 1000
"""Characters of what the library says about a grammar, which may repeat all of it."""

_LONGEST = 1024
"""Bytes of the longest token that llguidance's tree can hold; a longer one, like one of none, fits no grammar."""


_MOST_RIGHT = 1024
_RIGHT: OrderedDict[bytes, None] = OrderedDict()
"""Digests of the grammars that were found right last."""

_RIGHT_LOCK = Lock()


class Grammars:
    """Makes constraints of grammars.

    The first one takes longer, because it builds the tree of all tokens (at V = 248,320 about a second); it is kept.
    Safe to share between threads.

    Args:
        tokenizer: whose tokens the model writes.
        vocabulary: V, the rows of the model's head, which may be more than the tokenizer has.
    """

    def __init__(self, tokenizer: Tokenizer, vocabulary: int) -> None:
        self._tokenizer = tokenizer
        self._vocabulary = vocabulary
        self._tree: LLTokenizer | None = None
        self._gates: dict[tuple[int, bool], Gate] = {}
        self._lock = Lock()

    def constraint(self, grammar: Grammar | None, *, after: int | None = None, calls: str = "") -> GrammarConstraint:
        """A constraint at the beginning of `grammar`.

        Args:
            grammar: the form of the answer; None where it may only be calls.
            after: a token to wait for before the grammar applies; line ends right behind it are allowed.
            calls: what the answer may be instead, as `calls_grammar` writes it; empty for nothing else.

        Raises:
            RequestError: the grammar is wrong, or uses what llguidance cannot do; the text says what and where. Or
                `after` is no token.
        """
        if after is not None and not 0 <= after < self._tokenizer.size:
            raise RequestError(f"a grammar cannot begin behind token {after}; there are {self._tokenizer.size}")
        source = composed(grammar, thinking=after is not None, calls=calls)
        # What is wrong is said by the error and not printed, and it holds nothing of the answer.
        limits = LLParserLimits(max_items_in_row=WIDEST, verbose_errors=False)
        tokens = self._tokens()
        with no_panic():
            matcher = LLMatcher(tokens, source, log_level=0, limits=limits)
        if matcher.is_error():
            raise _unusable(grammar, matcher.get_error())
        gate = None if after is None else self._gate(after, bool(calls))
        constraint = GrammarConstraint(matcher, self._vocabulary, gate)
        try:
            with no_panic():
                constraint.begin()
                if after is not None:
                    constraint.begin(self._tokenizer.encode("\n\n"))
        except GrammarError as wrong:
            raise _unusable(grammar, f"no answer can be begun with it: {wrong}") from None
        return constraint

    def _tokens(self) -> LLTokenizer:
        with self._lock:
            if self._tree is None:
                ends = list(self._tokenizer.eos_ids)
                self._tree = LLTokenizer(TokenizerWrapper(_View(self._tokenizer)), eos_token=ends)
            return self._tree

    def _gate(self, token: int, calls: bool) -> Gate:
        """The gate of a token; where calls have a form, none may begin before it."""
        with self._lock:
            if (token, calls) not in self._gates:
                tokenizer = self._tokenizer
                hidden = tokenizer.control_ids - {token}
                ids = range(tokenizer.size)
                shown = [b"" if number in hidden else tokenizer.token_bytes(number) for number in ids]
                ending = np.zeros(self._vocabulary, np.bool_)
                ending[list(tokenizer.eos_ids)] = True
                opener = tokenizer.id_of("<tool_call>") if calls else None
                if opener is not None:
                    ending[opener] = True
                self._gates[token, calls] = Gate(token, shown, ending)
            return self._gates[token, calls]


class _View:
    """A tokenizer as llguidance wants to see it."""

    bos_token_id = None

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.eos_token_id = tokenizer.eos_ids[0]
        spelled = (tokenizer.token_bytes(token) for token in range(tokenizer.size))
        self.tokens = [text if len(text) <= _LONGEST else b"" for text in spelled]
        # No text of a grammar can be written with one of these; Lark grammars name them as <think>.
        self.special_token_ids = sorted(tokenizer.control_ids | tokenizer.user_defined_ids)
        self._encode = tokenizer.encode
        tags = sorted((tokenizer.token_bytes(token).decode() for token in tokenizer.user_defined_ids), key=len)
        self._tags = re.compile("|".join(map(re.escape, reversed(tags))) or "(?!)")

    def __call__(self, text: str) -> list[int]:
        """Tokens of a text of the grammar, in which a tag is text: its first character is written by itself."""
        ids: list[int] = []
        start = 0
        for tag in self._tags.finditer(text):
            ids += self._encode(text[start : tag.start() + 1])
            start = tag.start() + 1
        return ids + self._encode(text[start:])


def check_grammar(grammar: Grammar | None, *, thinking: bool = False, calls: str = "") -> None:
    """Refuse a grammar without building anything for a vocabulary. What was right lately is not looked at again.

    Raises:
        RequestError: it is wrong, or uses what llguidance cannot do; the text says what and where.
    """
    name = hashlib.blake2b(repr((grammar, thinking, calls)).encode()).digest()
    with _RIGHT_LOCK:
        if name in _RIGHT:
            _RIGHT.move_to_end(name)
            return
    source = composed(grammar, thinking=thinking, calls=calls)
    with no_panic():
        wrong = LLMatcher.validate_grammar(source)
    if wrong:
        raise _unusable(grammar, wrong)
    with _RIGHT_LOCK:
        _RIGHT[name] = None
        if len(_RIGHT) > _MOST_RIGHT:
            _RIGHT.popitem(last=False)


def composed(grammar: Grammar | None, *, thinking: bool, calls: str) -> str:
    """Everything an answer may be, in llguidance's own form.

    Raises:
        RequestError: it is too large, or a part of it cannot be read.
    """
    size = len(calls) + (0 if grammar is None else len(grammar.source))
    if size > LARGEST:
        raise RequestError(
            f"the grammar has {size} characters, more than the {LARGEST} that are compiled; make it smaller"
        )
    if grammar is not None and not thinking and not calls:
        return _source(grammar)
    parts: list[dict[str, Any]] = []
    if grammar is not None:
        parts = json.loads(_source(grammar))["grammars"]
        parts[0]["name"] = "body"
    if calls:
        parts.append({"name": "calls", "lark_grammar": calls})
    choices = " | ".join(f"@{name}" for name, there in (("body", grammar is not None), ("calls", bool(calls))) if there)
    lead = {"name": "lead", "lark_grammar": _LEAD.format(lead="LEAD" if thinking else "", choices=choices)}
    return json.dumps({"grammars": [lead, *parts]})


def _unusable(grammar: Grammar | None, reason: str) -> RequestError:
    named = "of the tool calls" if grammar is None else f"({grammar.kind})"
    reason = FAULT if reason.startswith("panic:") else reason.strip()
    return RequestError(f"the grammar {named} cannot be used: {reason[:_LONGEST_REASON]}")


def _source(grammar: Grammar) -> str:
    """The grammar in llguidance's own form, a JSON text."""
    with no_panic():
        return _translated(grammar)


def _translated(grammar: Grammar) -> str:
    match grammar.kind:
        case Kind.JSON_OBJECT:
            return _json('{"type": "object"}')
        case Kind.JSON_SCHEMA:
            return _json(grammar.source)
        case Kind.REGEX:
            return LLMatcher.grammar_from_regex(grammar.source)
        case Kind.LARK:
            return _listed({"lark_grammar": grammar.source})
        case Kind.GBNF:
            try:
                return _listed({"lark_grammar": gbnf_to_lark(grammar.source)})
            except Exception as wrong:
                raise RequestError(f"the grammar (gbnf) cannot be read: {wrong}") from wrong


def _json(schema: str) -> str:
    try:
        return LLMatcher.grammar_from_json_schema(schema, overrides=_BLANKS)
    except ValueError as wrong:
        raise RequestError(f"the grammar (json_schema) is no JSON: {wrong}") from wrong


def _listed(grammar: dict[str, Any]) -> str:
    return json.dumps({"grammars": [grammar]})
