"""Answers that have to have a form: grammars, and which tokens they allow."""

from strata.text.grammar.calls import calls_grammar
from strata.text.grammar.constraint import GrammarConstraint, GrammarError
from strata.text.grammar.grammar import Grammar, Kind
from strata.text.grammar.grammars import Grammars, check_grammar

__all__ = ["Grammar", "GrammarConstraint", "GrammarError", "Grammars", "Kind", "calls_grammar", "check_grammar"]
