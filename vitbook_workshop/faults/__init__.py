"""What goes wrong in Vision Transformers, what must hold of right ones, and the tools that tell which is which.

`invariants` says what must hold, and `mistakes` how it is broken. `diagnosis` asks it of a model, `watch_training` of a
training loop, `diagnose_on_data` of both on a data set; `compare_with_reference` puts a model beside a right one.
"""
