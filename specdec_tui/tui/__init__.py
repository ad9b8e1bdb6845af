"""The screen, room by room; an arrow between rooms only goes the way `tests/test_layers.py` has it."""
