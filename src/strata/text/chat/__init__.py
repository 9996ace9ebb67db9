"""Chat templates: conversations to prompts."""
