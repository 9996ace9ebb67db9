"""Text in and out: tokenizer, chat template, streaming detokeniser, and the parser of what a model writes.

Works from the metadata of a GGUF file and nothing else; see docs/text.md for the rules.
"""

from strata.text.chat.builtin import pebble_template
from strata.text.chat.renderer import Limits
from strata.text.chat.template import ChatTemplate
from strata.text.detokeniser import Detokeniser
from strata.text.output.deltas import Content, Delta, Reasoning, ToolCallArguments, ToolCallEnd, ToolCallStart
from strata.text.output.parser import OutputParser
from strata.text.prompt import Control, Prompt
from strata.text.stops import Stops
from strata.text.tokenizer import Tokenizer

__all__ = [
    "ChatTemplate",
    "Content",
    "Control",
    "Delta",
    "Detokeniser",
    "Limits",
    "OutputParser",
    "Prompt",
    "Reasoning",
    "Stops",
    "Tokenizer",
    "ToolCallArguments",
    "ToolCallEnd",
    "ToolCallStart",
    "pebble_template",
]
