"""How the demo drafter is made: text that the target wrote, a loss close to acceptance, a measured result."""
