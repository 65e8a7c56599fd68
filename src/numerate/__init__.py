"""numerate: units that do arithmetic, logic and long memory, and every published experiment on them."""

__version__ = "0.1.0"
