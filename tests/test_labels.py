"""Text from a results file is shown as text: on a terminal, in a file name, in a spreadsheet."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from numerate.labels import file_names, printable, spreadsheet_cell
from numerate.terminal import visible

anything = st.text(st.characters(exclude_categories=()), max_size=200)


@settings(deadline=None)
@given(anything)
def test_printable_text_is_one_line_without_control_characters_and_can_be_written(text):
    shown = printable(text)
    assert len(shown) == len(text)
    assert shown.splitlines() in ([], [shown])
    assert "\x1b" not in shown
    shown.encode()


def test_the_terminal_keeps_line_ends_and_tabs_and_nothing_else_that_acts():
    assert visible("a\tb\nc\x1b[2Jd\re\u2028f\u202eg\ud800") == "a\tb\nc�[2Jd�e�f�g�"


def test_what_is_harmless_stays_as_it_is():
    assert (
        printable("NAC•,σ [−2, −1) ∪ [1, 2) \N{NO-BREAK SPACE}[/b]")
        == "NAC•,σ [−2, −1) ∪ [1, 2) \N{NO-BREAK SPACE}[/b]"
    )


@settings(deadline=None)
@given(st.lists(anything, unique=True, max_size=8))
def test_files_stay_in_their_folder_and_apart(labels):
    names = file_names(labels, taken=["overview"])
    assert list(names) == labels
    assert len({name.casefold() for name in names.values()} | {"overview"}) == len(labels) + 1
    for name in names.values():
        path = Path("folder") / f"{name}.png"
        assert path.parent == Path("folder")
        assert not name.startswith(".")
        assert len(path.name.encode()) <= 255


@pytest.mark.parametrize(
    ("label", "name"), [("mul", "mul"), ("100 inputs", "100-inputs"), ("../../../evil", "_.._.._evil"), ("", "unnamed")]
)
def test_names_of_files_can_be_read(label, name):
    assert file_names([label]) == {label: name}


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("=1+1", "'=1+1"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("+a", "'+a"),
        ("-a*b", "'-a*b"),
        ("\t=1", "'\t=1"),
        ("-2.5", "-2.5"),
        ("-inf", "-inf"),
        ("NMU", "NMU"),
        (-3.0, -3.0),
        (None, None),
    ],
)
def test_a_spreadsheet_runs_nothing(value, written):
    assert spreadsheet_cell(value) == written
