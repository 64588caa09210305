"""How sure a model is: probabilities that mean what they say, and a line below which the answer is "none of these"."""

import math

import torch.nn.functional as F
from jaxtyping import Bool, Float, Int64
from torch import Tensor

Logits = Float[Tensor, "N K"]
Scores = Float[Tensor, " N"]  # the higher, the less like what the model was trained on


def fitted_temperature(logits: Logits, labels: Int64[Tensor, " N"]) -> float:
    """The T for which softmax(z/T) has the least cross-entropy on these images; above 1, the model was too sure.

    Guo et al. 2017, section 4.2. The loss is convex in 1/T, whose least value is found by bisection of its slope, from
    0.01 to 100. The order of the classes, and so every answer, stays. Differs: theirs is found by L-BFGS.
    """
    logits, low, high = logits.double(), math.log(0.01), math.log(100.0)
    for _ in range(60):
        middle = (low + high) / 2
        scaled = logits * math.exp(middle)
        slope = ((scaled.softmax(dim=-1) * logits).sum(dim=-1) - logits.gather(1, labels[:, None])[:, 0]).mean()
        low, high = (low, middle) if slope > 0 else (middle, high)
    return math.exp(-(low + high) / 2)


def least_probability(logits: Logits) -> Scores:
    """One minus the largest probability: how unsure the model says it is. Hendrycks and Gimpel 2017."""
    return 1 - logits.softmax(dim=-1).amax(dim=-1)


def energy(logits: Logits, temperature: float = 1.0) -> Scores:
    """−T ln Σ exp(z/T): low where some logit is large, whatever the others are (arXiv:2010.03759, Eq. 4)."""
    return -temperature * (logits / temperature).logsumexp(dim=-1)


def feature_distance(features: Float[Tensor, "N D"], bank: Float[Tensor, "M D"], k: int = 5) -> Scores:
    """One minus the cosine to the k-th nearest of known features. Sun et al. 2022."""
    similar = F.normalize(features, dim=-1) @ F.normalize(bank, dim=-1).T
    return 1 - similar.topk(min(k, len(bank)), dim=-1).values[:, -1]


UNKNOWN_BY = {"probability": least_probability, "energy": energy}  # of logits; the distance needs features


def unknown_above(scores: Scores, share: float) -> float:
    """The score above which to say "none of these", so that a share of known images at most is turned away falsely.

    scores: of n images that the model knows and was not trained on. The ⌈(1 − share)(n + 1)⌉-th smallest: of one more
    image drawn as they were, the chance to lie above it is at most `share` (Vovk et al. 2005, "conformal"). Raises
    ValueError unless 0 < share < 1, and where n is too small to tell.
    """
    if not 0 < share < 1:
        raise ValueError(f"the share of false alarms must lie between 0 and 1, got {share}")
    place, needed = math.ceil((1 - share) * (len(scores) + 1) - 1e-9), math.ceil(1 / share - 1 - 1e-9)
    if place > len(scores):
        raise ValueError(f"a share of {share} needs at least {needed} validation images, got {len(scores)}")
    return scores.sort().values[place - 1].item()


def auroc(scores: Scores, positive: Bool[Tensor, " N"]) -> float:
    """The chance that a positive has a higher score than a negative, a tie counting half: the area under the ROC curve.

    nan where either is missing.
    """
    values, place = scores.unique(return_inverse=True)
    count = place.bincount(minlength=len(values)).double()
    rank = count.cumsum(dim=0) - (count - 1) / 2  # of tied scores, the mean of theirs, from 1
    right, wrong = int(positive.sum()), int((~positive).sum())
    above = rank[place][positive].sum().item() - right * (right + 1) / 2
    return above / (right * wrong) if right * wrong else math.nan
