"""One strategy on the screen, and all of them together."""
