"""Quantized matrices: how they are read from a loaded model, how they lie on a GPU, and the kernels that multiply."""
