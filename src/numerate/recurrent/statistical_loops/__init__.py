"""The statistical recurrent unit's loops over time, written by hand.

The emitter (:mod:`numerate.loops.timeloops`) knows steps of one recurrent product; here are two, one after the other,
with few columns and many averages. The output is a map of the averages, made for all steps at once outside of the loop.
The mathematics is that of :class:`numerate.recurrent.statistical.StatisticalRUCell`, to which the tests hold the loops.
"""
