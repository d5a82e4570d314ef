"""The parts: small modules that receive widths and other parts, and know nothing of fairseq.

To follow one step of a decoder: :mod:`.transition` (the step), :mod:`.attention`, :mod:`.cells`, and the names of what
a step hands to the next in :mod:`.state`.  :mod:`.decoder` runs the steps; what nothing in a step waits for, such as
:mod:`.readout`, comes before and after them.  Everything is ordinary PyTorch that autograd differentiates;
:mod:`.fast` holds what stands in a part's place for speed or memory.
"""
