"""The command line: one file per command; each parses, calls, and prints."""

import gc

# A start makes tens of thousands of objects that stay. At the usual threshold of 700 they are
# walked through again and again.
gc.set_threshold(50_000)
