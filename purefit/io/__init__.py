"""The only effects: data in, checkpoints and run folders out, progress on the screen."""
