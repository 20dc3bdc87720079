"""What local strategies share: their task, the nodes of combinations, and the way from classes to a result."""
