"""What a captured round does beside its passes: tokens are chosen and drawn, drafts judged, results put down."""
