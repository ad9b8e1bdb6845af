"""What the app asks of its terminal: keys in order, whole pastes, quiet file descriptors, leaving."""
