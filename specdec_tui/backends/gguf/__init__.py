"""GGUF files read straight from the disk: header, tensors, config and tokenizer. The format is llama.cpp's."""
