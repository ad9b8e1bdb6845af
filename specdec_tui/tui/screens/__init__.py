"""What opens on top of the panes: help, history, comparison, export, models, settings."""
