"""From a graph of ATen operations to the intermediate form: one rule per operation."""
