"""What a release of linked tables consists of: its manifest, its views, its comments, and how it is verified."""
