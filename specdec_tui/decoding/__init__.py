"""Rounds, sampling, verification, drafters, n-gram stores and figures: no files, no network, no screen."""
