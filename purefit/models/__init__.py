"""Networks and the doors that they come in by."""
