"""The kernel form: loops, variables, memory, barriers and random numbers, before they become text."""
