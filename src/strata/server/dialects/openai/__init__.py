"""OpenAI's chat and completions, with what other servers have added to them."""
