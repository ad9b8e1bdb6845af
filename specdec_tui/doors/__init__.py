"""The only ways in and out: text to a terminal, files that are read, files that are written."""
