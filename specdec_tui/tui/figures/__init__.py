"""A run as numbers: words, the comparison table, charts."""
