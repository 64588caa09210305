#!/bin/sh
# torch 2.13.0: a DataLoader whose worker processes are idle ends them at once when its last reference goes, but takes
# five seconds for each that has read anything when it is freed as part of a circle of references. A circle is easily
# made: an object that holds the loader and is its own batch sampler, a trainer whose handlers are its own methods. Then
# the garbage collector frees all of it together, and the thread that feeds a worker's queue is ended before the loader's
# __del__ puts the word to stop into that queue, where it stays; the worker hears nothing, and is terminated after the
# timeout. With one such loader an epoch, training stands still for that long, at a line that has nothing to do with data.
# Guessed: that idle workers end in milliseconds either way, as __del__ is called either way.
set -e
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/pip install --quiet torch==2.13.0 numpy==2.4.6
cat > try.py <<'P'
import gc
import time

import torch
from torch.utils.data import DataLoader, TensorDataset


class Epochs:
    """Holds a loader; if in a circle, is the loader's batch sampler as well."""

    def __init__(self, workers, circle):
        batches = [[0], [1], [2], [3]]
        self.batches = batches
        sampler = self if circle else batches
        self.loader = DataLoader(TensorDataset(torch.arange(4.0)), batch_sampler=sampler, num_workers=workers,
                                 persistent_workers=True)

    def __iter__(self):
        return iter(self.batches)


if __name__ == "__main__":
    print("torch", torch.__version__.split("+")[0])
    gc.disable()  # so that it is seen what takes how long
    seconds = {}
    for workers in (1, 2, 3):
        for circle in (False, True):
            epochs = Epochs(workers, circle)
            assert len(list(epochs.loader)) == 4
            time.sleep(0.5)
            start = time.perf_counter()
            del epochs
            gc.collect()
            seconds[workers, circle] = time.perf_counter() - start
            words = "in a circle" if circle else "alone"
            print(f"workers: {workers}, {words:<12} freed in {seconds[workers, circle]:5.1f} s")
    assert all(taken < 2 for (_, circle), taken in seconds.items() if not circle)
    assert all(5 * workers <= taken < 5 * workers + 3 for (workers, circle), taken in seconds.items() if circle)
P
env/bin/python try.py
