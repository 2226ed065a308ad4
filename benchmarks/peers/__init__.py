"""Other engines on the same files and threads, each in an environment of its own."""
