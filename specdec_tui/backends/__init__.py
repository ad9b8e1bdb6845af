"""Where logits come from: loading models, their caches, tokenizers and the presets."""
