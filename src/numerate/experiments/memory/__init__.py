"""A comparison that no paper has: every recurrent unit, old and new, of equal size and under one protocol."""
