"""Classes of persons with separate levels."""
