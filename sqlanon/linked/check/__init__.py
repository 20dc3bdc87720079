"""The check of a generalization: the persons and rows that stay, and who shares what an attacker knows."""
