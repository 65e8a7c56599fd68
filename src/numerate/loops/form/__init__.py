"""The intermediate form, and its reference interpreter."""
