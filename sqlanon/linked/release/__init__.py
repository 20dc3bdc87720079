"""The contents of a release of linked tables: manifest, views and comments, and their verification."""
