"""The app: what is on the screen, its engine thread, and what becomes of runs."""
