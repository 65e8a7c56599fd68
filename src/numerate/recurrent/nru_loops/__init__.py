"""The NRU's loops over time, written by hand: the exception to the loops that are emitted from a cell's step.

The emitter (:mod:`numerate.loops.timeloops`) knows steps of one recurrent product followed by mathematics on its
columns. A step of the NRU has two products, one after the other, of which the second reads the result of the first and
the memory; its memory is wider than its hidden state; and its update is of rank one or, rectified, two, so that the M
directions are never made. None of that fits a single product and a function of its columns, and no other cell needs it.
The mathematics is that of :class:`numerate.recurrent.nru.NRUCell`, to which the tests hold all loops: outputs, states,
every gradient.
"""
