"""A run as coloured tokens: as text, as rounds, as a tree, with a cursor and a legend."""
