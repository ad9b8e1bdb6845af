"""The one table of commands, the palette made from it, the header, and what dialogs share."""
