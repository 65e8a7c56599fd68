"""A step as one C++ loop."""
