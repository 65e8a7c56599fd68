"""A Primer for Neural Arithmetic Logic Modules (Mistry, Farrahi & Hare, 2022)."""
