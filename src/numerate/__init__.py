"""numerate: units that do arithmetic, logic and long memory, and the experiments of the arithmetic papers."""

__version__ = "0.1.0"
