"""The pure part: no files, clocks, prints, environment or globals."""
