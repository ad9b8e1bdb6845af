"""The CPU's own decoder passes: packed or expanded weights, one compiled function, sums in one fixed order."""
