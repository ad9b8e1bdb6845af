"""Runs that a server drafted and checked by itself, from recordings of what it streamed."""
