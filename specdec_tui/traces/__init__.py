"""Record, read, replay and export what the strategies did on a prompt. Neither Textual nor torch here."""
