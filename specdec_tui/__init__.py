"""specdec-tui: a terminal laboratory for speculative decoding."""

__version__ = "0.2.0"
