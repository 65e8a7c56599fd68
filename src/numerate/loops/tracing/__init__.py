"""From modules and steps to flat graphs of ATen operations."""
