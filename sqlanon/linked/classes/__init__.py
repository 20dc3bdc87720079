"""Classes of persons with levels of their own."""
