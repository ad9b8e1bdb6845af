"""One token explained."""
