"""Arguments, a library call, a print."""
