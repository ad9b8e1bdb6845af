"""Finished runs played together: their times, lanes and rounds, and the panel that shows them."""
