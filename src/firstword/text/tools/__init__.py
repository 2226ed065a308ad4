"""Tools: how models are told of them and how they call them, one format per file."""
