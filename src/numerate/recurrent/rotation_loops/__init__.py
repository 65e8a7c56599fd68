"""The EURNN's loops over time, written by hand: the hidden state is rotated level by level, in O(H log H).

The emitter (:mod:`numerate.loops.timeloops`) knows steps of one matrix product, which takes O(H²). The mathematics is
that of :class:`numerate.recurrent.eurnn.EURNNCell`, real and FFT style, to which the tests hold the loops.
"""
