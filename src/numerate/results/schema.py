"""The tables of a results file.

Format 1 had digests of results alone; since format 2 a digest covers experiment and labels too. Files of format 1 are
read as they are, and become format 2 when they are opened for writing; their rows keep their digests.

Runs are appended: their table is one with row numbers, and its pages hold several runs each. Files of before have runs
in the order of their keys, on pages that hold less than one; SQL does not tell the difference.
"""

FORMAT = 2
PAGE_SIZE = 16384
"""Bytes, of new files: a run has 3,000 to 10,000, and what does not fit the rest of a page begins another."""
APPLICATION = 0x6E756D72  # "numr": tells our files from other SQLite databases

TABLES = (
    """CREATE TABLE IF NOT EXISTS runs (
  config_hash TEXT NOT NULL, seed INTEGER NOT NULL, experiment TEXT NOT NULL, labels TEXT NOT NULL,
  config TEXT NOT NULL, status TEXT NOT NULL, stopped_at INTEGER, reason TEXT NOT NULL,
  curves BLOB NOT NULL, scores TEXT NOT NULL, weights BLOB NOT NULL, digest TEXT NOT NULL,
  PRIMARY KEY (config_hash, seed))""",
    """CREATE TABLE IF NOT EXISTS circumstances (
  config_hash TEXT NOT NULL, seed INTEGER NOT NULL, backend TEXT NOT NULL, versions TEXT NOT NULL,
  hardware TEXT NOT NULL, timing TEXT NOT NULL, created TEXT NOT NULL,
  PRIMARY KEY (config_hash, seed)) WITHOUT ROWID""",
    "CREATE TABLE IF NOT EXISTS checkpoints (name TEXT PRIMARY KEY, arrays BLOB NOT NULL, meta TEXT NOT NULL)",
    "CREATE INDEX IF NOT EXISTS runs_by_experiment ON runs (experiment)",
    """CREATE TABLE IF NOT EXISTS shared (
  config_hash TEXT NOT NULL, seed INTEGER NOT NULL, experiment TEXT NOT NULL, labels TEXT NOT NULL, digest TEXT,
  PRIMARY KEY (config_hash, seed, experiment)) WITHOUT ROWID""",
)
"""``circumstances`` holds the provenance of runs; ``shared`` the experiments that use a run which another stored."""

RESULT_DIGITS = 64
"""``runs.digest`` begins with the digest of the result; since format 2 '-' and the digest of the names follow."""
