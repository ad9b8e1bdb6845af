"""Command-line settings of a student small enough for a test."""

_STUDENT = ["--width", "16", "--layers", "1", "--heads", "2", "--kv-heads", "1", "--mlp", "16"]
TOY_TRAINING = [*_STUDENT, "--batch", "4", "--warmup", "2", "--held-out", "2", "--peak", "0.01"]
