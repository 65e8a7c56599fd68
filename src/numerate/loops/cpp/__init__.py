"""The CPU target: a step as one C++ loop."""
