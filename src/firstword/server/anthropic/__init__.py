"""The Anthropic API: messages, and counting their tokens."""
