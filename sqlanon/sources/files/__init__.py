"""Data files: how each format is read, and what is refused because its meaning is in doubt."""
