"""Prompt suites, repeats, statistics and reports."""
