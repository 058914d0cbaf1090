"""Loads and checks the rules, which are data: the top-level `rules/` folder, shipped inside the package."""
