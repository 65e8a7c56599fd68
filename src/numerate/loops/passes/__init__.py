"""From program to program, and decisions about loops, addresses and placement."""
