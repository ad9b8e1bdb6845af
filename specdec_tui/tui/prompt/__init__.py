"""The prompt box and its history."""
