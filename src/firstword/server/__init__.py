"""The HTTP server that `firstword serve` runs: one app, one folder per API family."""
