"""The arithmetic: one protocol, several backends."""
