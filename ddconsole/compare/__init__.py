"""Two runs against each other: what changed around them, and what became of each cell."""
