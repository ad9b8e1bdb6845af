"""A target on a server: asking it over HTTP."""
