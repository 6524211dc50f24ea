"""Small tools that every room uses: checked arguments, numbers as text, TOML, time budgets, the machine."""
