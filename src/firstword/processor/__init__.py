"""Between text and the engine: prompts become token ids, tokens become streamed text.

Not here: loading models, threads, processes.
"""
