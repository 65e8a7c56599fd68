"""Settings for all tests."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # the workers share the cores; read when torch is imported
