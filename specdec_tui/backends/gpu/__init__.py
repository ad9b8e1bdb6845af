"""Passes of a loaded model over a few tokens on a GPU, by kernels of our own."""
