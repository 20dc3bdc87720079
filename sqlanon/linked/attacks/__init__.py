"""What attackers who know rows of several tables find in a source and in a release."""
