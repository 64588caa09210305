"""A training run as its owner knows it, by a name or a folder: its settings, the run, and what came of it.

`settings` → `training` → `results`. `trained_models` opens what a run, a file or a publisher has left, `text_towers`
and `lora_files` what no chapter derives of it; `teachers` lets it teach, `segmented` lets it name pixels.
"""
