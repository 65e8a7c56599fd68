"""Docstrings: examples run, and classes with many arguments list them one by one."""

import doctest
import importlib
import inspect
import pkgutil

import pytest

import numerate.units

MODULES = [f"numerate.units.{module.name}" for module in pkgutil.iter_modules(numerate.units.__path__)]
CLASSES = [getattr(numerate.units, name) for name in numerate.units.__all__]
CLASSES = [member for member in CLASSES if inspect.isclass(member)]


@pytest.mark.parametrize("name", MODULES)
def test_examples_print_what_they_show(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_there_are_examples():
    finder = doctest.DocTestFinder()
    assert any(test.examples for name in MODULES for test in finder.find(importlib.import_module(name)))


@pytest.mark.parametrize("member", CLASSES, ids=lambda member: member.__name__)
def test_more_than_three_arguments_are_listed(member):
    names = [name for name in inspect.signature(member).parameters if name not in ("device", "dtype")]
    if len(names) > 3:
        listed = (member.__doc__ or "").partition("Args:")[2]
        assert [name for name in names if f" {name}:" not in listed] == []
