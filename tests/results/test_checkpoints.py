"""States of groups that are still training: replaced, dropped, and never taken once damaged."""

import numpy as np
import pytest

from numerate.results import Store


def test_checkpoints_are_replaced_and_dropped(path):
    state = {"weight": np.arange(6, dtype=np.float32).reshape(3, 2), "step": np.array(1000)}
    with Store(path) as store:
        assert store.load_checkpoint("group") is None
        store.checkpoint("group", {"weight": np.zeros(1)}, {"step": 1})
        store.checkpoint("group", state, {"step": 1000, "seeds": [1, 2]})
    with Store(path) as store:
        assert store.checkpoints() == ["group"]
        back = store.load_checkpoint("group")
        assert back is not None
        assert back.meta == {"step": 1000, "seeds": [1, 2]}
        np.testing.assert_array_equal(back.arrays["weight"], state["weight"])
        assert back.arrays["step"].shape == ()
        store.drop_checkpoint("group")
        assert store.checkpoints() == []


@pytest.mark.parametrize(
    "damage",
    [
        "arrays = CAST(substr(arrays, 1, length(arrays) - 1) || x'bf' AS BLOB)",  # one bit: the last 1.0 is -1.0
        "arrays = substr(arrays, 1, 20)",
        "meta = replace(meta, '1000', '1001')",
        "meta = '{}'",
        "meta = '{'",
        "meta = '[1]'",
        "meta = CAST(x'ff' AS TEXT)",
        """meta = '{"step":1000}'""",  # as earlier versions wrote it, without a digest
    ],
)
def test_a_damaged_checkpoint_is_told_and_forgotten(path, damage, caplog):
    with Store(path) as store:
        for name in ("spoilt", "whole"):
            store.checkpoint(name, {"weight": np.ones(2)}, {"step": 1000})
        changed = store._file.db.execute(f"UPDATE checkpoints SET {damage} WHERE name = 'spoilt'").rowcount
        assert changed == 1
    with Store(path, readonly=True) as store:
        assert store.load_checkpoint("spoilt") is None
        assert store.checkpoints() == ["spoilt", "whole"]
    caplog.clear()
    with Store(path) as store:
        assert store.load_checkpoint("spoilt") is None
        assert store.load_checkpoint("spoilt") is None
        assert store.checkpoints() == ["whole"]
        whole = store.load_checkpoint("whole")
        assert whole is not None
        assert whole.meta == {"step": 1000}
    ((logger, _, text),) = caplog.record_tuples
    assert logger == "numerate"
    assert f"group spoilt in {path}" in text
    assert "starts anew" in text


def test_a_checkpoint_under_the_name_of_another_group_is_not_taken(path):
    with Store(path) as store:
        store.checkpoint("one", {"weight": np.ones(2)})
        store._file.db.execute("UPDATE checkpoints SET name = 'two'")
        assert store.load_checkpoint("two") is None


def test_the_digest_of_a_checkpoint_is_not_the_users_to_name(path):
    with Store(path) as store, pytest.raises(ValueError, match="the store's own"):
        store.checkpoint("group", {}, {"digest": "mine"})
