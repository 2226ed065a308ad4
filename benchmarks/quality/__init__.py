"""What quantized arithmetic costs in quality, on real text, beside another engine's."""
