"""The host's loop: run a segment, look, save, report, decide."""
