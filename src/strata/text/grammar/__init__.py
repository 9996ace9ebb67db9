"""Answers that have to have a form: grammars, and which tokens they allow."""

from strata.text.grammar.constraint import GrammarConstraint, GrammarError
from strata.text.grammar.grammar import Grammar, Kind
from strata.text.grammar.grammars import Grammars

__all__ = ["Grammar", "GrammarConstraint", "GrammarError", "Grammars", "Kind"]
