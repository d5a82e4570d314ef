"""The components: small modules that receive widths and other components, and do not import fairseq.

To follow one step of a decoder, read :mod:`.transition` (the step), :mod:`.attention` and :mod:`.cells`.  :mod:`.state`
names the values that one step hands to the next.  :mod:`.decoder` runs the steps.  Work outside the recurrence, such as
:mod:`.readout`, runs before or after the steps.  Everything is ordinary PyTorch that autograd differentiates.
:mod:`.fast` replaces components for speed or memory.
"""
