"""How much of a sequence can be recalled from one vector, after few training steps and after ten times as many?

    python records/recall.py vitbook/assets/runs/recall.json

The reader is chapter 1's without attention. Every length and number of steps is an arm with its own rate. Every
sequence is new, in training and after it. On one core, it takes two minutes.
"""

import torch
import torch.nn.functional as F
from harness import Rows, arguments_of, compare
from torch import Tensor, nn

from vitbook.runtime import seed_everything

SYMBOLS, LONGEST, DIM, BATCH, JUDGED = 8, 16, 32, 64, 10_000
ARMS = {f"{length} symbols, {steps} steps": (length, steps) for length, steps in
        ((4, 300), (8, 300), (16, 300), (8, 3000), (16, 3000))}  # fmt: skip


class Reader(nn.Module):
    """Reads symbols (B, T) one after another and says which of them stood at the place asked for, (B,). → (B, 8)."""

    def __init__(self):
        super().__init__()
        self.symbol, self.place, self.question = (nn.Embedding(k, DIM) for k in (SYMBOLS, LONGEST, LONGEST))
        self.rnn = nn.GRU(DIM, DIM, batch_first=True)
        self.answer = nn.Sequential(nn.Linear(2 * DIM, 64), nn.ReLU(), nn.Linear(64, SYMBOLS))

    def forward(self, symbols: Tensor, asked: Tensor) -> Tensor:
        _, last = self.rnn(self.symbol(symbols) + self.place.weight[: symbols.shape[1]])
        return self.answer(torch.cat([last[0], self.question(asked)], dim=1))


def drawn(count: int, length: int) -> tuple[Tensor, Tensor, Tensor]:
    """Symbols, the places asked for, and the right answers."""
    symbols, asked = torch.randint(SYMBOLS, (count, length)), torch.randint(length, (count,))
    return symbols, asked, symbols[torch.arange(count), asked]


def run(arm: str, rate: float, seed: int, tuning: bool) -> dict:
    length, steps = ARMS[arm]
    seed_everything(seed)
    model = Reader()
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    for _ in range(steps):
        symbols, asked, truth = drawn(BATCH, length)
        loss = F.cross_entropy(model(symbols, asked), truth)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    symbols, asked, truth = drawn(JUDGED, length)
    with torch.no_grad():
        right = (model(symbols, asked).argmax(dim=1) == truth).double().mean().item()
    return {"validation_accuracy" if tuning else "test_accuracy": right, "n": JUDGED}


def main(arguments: list[str] | None = None) -> None:
    parser = arguments_of(__doc__, data_dir=False)
    parser.add_argument("--arms", nargs="+", default=list(ARMS), choices=list(ARMS), metavar="ARM")
    parser.add_argument("--rates", type=float, nargs="+", default=[2.5e-3, 5e-3, 1e-2])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    compare(Rows(given.file), run, given.arms, given.rates, given.seeds)


if __name__ == "__main__":
    main()
