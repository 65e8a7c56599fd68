"""Networks that learn from batches: sequences, text, images.

======================  ==========================================================================================
``specification``       what to train: :class:`NetworkTraining`, :class:`Stop`
``randomness``          dropout and its like, from a stream of (seed, update)
``member``              one run as pure functions: loss, measures
``flat``                parameters of a stack as one matrix, a row for each run
``adam``                clipping and Adam on such a matrix; a run that is no longer finite stays as it was
``stack``               runs computed together: one after the other, or by ``vmap`` in one CUDA graph per update
``log``                 what is noted of every update: means for the curves, and when a run is solved
``capture``             operations in a form that a CUDA graph can record
``workers``             processes that share the runs of a group on a CPU
``grouping``            which runs are trained together
``convolution``         convolutions of stacked networks as matrix products
``cpu_adam``            Adam as one native loop on a CPU
``cuda_adam``           Adam as kernels on a GPU
``group``               a stack from its first update, or a checkpoint, to rows in the store
``side_by_side``        groups one after the other, or several at once on a GPU
``gpu_streams``         the streams on which these are trained and recorded
======================  ==========================================================================================
"""
