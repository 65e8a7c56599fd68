"""From program to program: what is decided before anything is printed."""
