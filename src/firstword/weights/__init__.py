"""From model files to tensors: catalogue, GGUF reader, names, loader."""
