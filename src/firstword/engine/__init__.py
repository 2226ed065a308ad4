"""From requests to steps and back. Knows token ids only, never text."""
