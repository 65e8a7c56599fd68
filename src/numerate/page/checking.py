"""Whether the runs that are counted are as they were written: looked at once each, behind the page's back."""

from pathlib import Path

from numerate.results import Key
from numerate.results.opening import connect
from numerate.results.record import RECORD, Record, has_its_names, is_intact


class Checking:
    """The runs of a results file whose bytes give their digest, and those whose do not.

    Args:
        path: of the file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.intact: set[Key] = set()

    def damaged(self) -> list[Key]:
        """Of the runs that were not looked at before, and of those that were damaged then."""
        if not self.path.exists():
            return []
        found = []
        db = connect(self.path, readonly=True)
        db.text_factory = lambda data: data.decode(errors="replace")
        try:
            for key in map(Key._make, db.execute("SELECT config_hash, seed FROM runs").fetchall()):
                if key not in self.intact:
                    record = db.execute(RECORD, key).fetchone()
                    if record is None or self._is_whole(Record._make(record)):
                        self.intact.add(key)
                    else:
                        found.append(key)
        finally:
            db.close()
        return found

    @staticmethod
    def _is_whole(record: Record) -> bool:
        return is_intact(record) and has_its_names(record.entry)
