"""From the kernel form to text: one small printer per dialect."""
