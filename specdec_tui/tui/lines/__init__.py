"""Text that grows: wrapped, searched and painted line by line, and the door for foreign strings."""
