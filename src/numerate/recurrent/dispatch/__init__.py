"""Dispatch: which loop walks a cell along time, and the loops it can be.

:mod:`~numerate.recurrent.dispatch.choose` decides, in one function; :mod:`~numerate.recurrent.dispatch.unroll` asks it
and runs what it chose:

======================================================  ==============================================================
:mod:`~numerate.recurrent.dispatch.plain`               one step after the other, what all else is compared with
:mod:`~numerate.recurrent.dispatch.native`              a compiled loop of the cell, on a CPU or a GPU
:mod:`~numerate.recurrent.dispatch.fused`               torch's operation for a whole sequence (cuDNN)
:mod:`~numerate.recurrent.dispatch.scan`                torch's scan, where an exported program leaves the length open
:mod:`~numerate.recurrent.dispatch.outside_graph`       any of these, outside a graph of ``torch.compile``
======================================================  ==============================================================
"""

from numerate.recurrent.dispatch.mode import use_loop

__all__ = ["use_loop"]
