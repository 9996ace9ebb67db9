"""What a model writes, taken apart: reasoning, content and tool calls."""
