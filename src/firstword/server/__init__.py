"""The HTTP server: existing clients' APIs over one `AsyncLLM`."""
