"""What comes of asking whether something holds: it does or does not, it makes no sense to ask, or it cannot be seen."""

import textwrap
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vitbook_workshop.book_address import chapters_address, page_of

if TYPE_CHECKING:
    from vitbook_workshop.faults.invariants import MustHold


ATTENTION_SEEN = "attention_is_seen"  # the name of the finding that says how much of a model could be looked at
EXAMINATION_ENDS = "examination_ends", "the examination comes to its end"  # of the finding that it did not


class NotAsked(Exception):
    """A check that makes no sense here, and why."""


@dataclass
class Failed(Exception):
    """What was seen, in numbers, and a better suspect and section than the invariant's, if there are."""

    evidence: str
    suspect: str = ""
    where: str = ""
    likely: str = ""  # why the failure is likely a mistake and not certainly; "" for the invariant's reason


def skip_if(condition: object, reason: str) -> None:
    """Do not ask, for this reason."""
    if condition:
        raise NotAsked(reason)


def expect(holds: bool, evidence: str) -> None:
    """Fail unless it holds."""
    if not holds:
        raise Failed(evidence)


def attempt(run: Callable[[], Any]) -> Any:
    """What `run` returns; an error of the model's is a failure."""
    try:
        return run()
    except NotAsked:
        raise
    except Exception as error:
        raise Failed(textwrap.shorten(f"{type(error).__name__}: {error}", 200, placeholder=" …")) from None


@dataclass(frozen=True)
class Finding:
    """Whether one thing holds."""

    name: str  # of the invariant
    about: str  # what must hold
    # "passed", "FAILED", "not asked"; "STOPPED" by an error in the model's code; "ERROR" in this package's own, or its
    # time was over; "UNSEEN" where too little of the model is recognized
    result: str
    details: str = ""  # what was seen, or why it was not
    suspect: str = ""  # what the failure suggests
    where: str = ""  # the section that explains it, as a link from another chapter
    certainty: str = ""  # of a failure: "certain" or "likely"
    reason: str = ""  # why

    @property
    def link(self) -> str:
        """The public address of the section, or its place in the repository where that address is not known."""
        return chapters_address() + page_of(self.where) if chapters_address() else f"chapters/{self.where}"

    @property
    def lines(self) -> list[str]:
        """What a report says of a failure, below what must hold."""
        doubt = [f"Not certain: {self.reason}."] if self.certainty == "likely" else []
        suspect = "Suspect" if self.certainty == "certain" else "Perhaps"
        return [self.details, f"{suspect}: {self.suspect}", *doubt, f"Read {self.link}"]


def ask(must_hold: "MustHold", check: Callable[..., str | None], *asked: object, certain: str) -> Finding:
    """What comes of a check, which may return a remark on what holds.

    asked: what it is asked of; certain: the reason to be certain of a failure.
    """
    said = must_hold.name, must_hold.about
    try:
        remark = check(*asked)
    except NotAsked as reason:
        return Finding(*said, "not asked", str(reason), must_hold.suspect, must_hold.where)
    except Failed as failure:
        suspect, where = failure.suspect or must_hold.suspect, failure.where or must_hold.where
        likely = failure.likely or must_hold.likely
        certainty, reason = ("likely", likely) if likely else ("certain", certain)
        return Finding(*said, "FAILED", failure.evidence, suspect, where, certainty, reason)
    return Finding(*said, "passed", remark or "", must_hold.suspect, must_hold.where)


def report(findings: list[Finding]) -> None:
    """Print what holds, what does not, and what that suggests."""
    for finding in findings:
        reason = f": {finding.details}" if finding.details and finding.result != "FAILED" else ""
        print(wrapped(f"{finding.result:<9}  {finding.about}{reason}", 11))
        if finding.result == "FAILED":
            print(*(wrapped(f"{'':11}{line}", 11) for line in finding.lines), sep="\n")
    print("", *map(wrapped, verdict(findings)), sep="\n")


def verdict(findings: list[Finding]) -> list[str]:
    """What it comes to, in a few lines."""
    count = Counter(finding.result for finding in findings if finding.name != ATTENTION_SEEN)
    asked = count["passed"] + count["FAILED"]
    lines = []
    for error, times in Counter(finding.details for finding in findings if finding.result == "ERROR").items():
        lines.append(f"{times} question{'s' * (times > 1)} without an answer: {error}")
    seen = next((f for f in findings if f.name == ATTENTION_SEEN and f.result in ("passed", "UNSEEN")), None)
    if seen and seen.result == "UNSEEN":
        lines.append(f"Not wholly examined: {seen.details}.")
    also = f"; {seen.details}" if seen and seen.result == "passed" else ""
    if count["STOPPED"]:
        lines.append(f"{count['STOPPED']} stopped with an error of the model's.")
    if count["FAILED"]:
        return [*lines, f"{count['FAILED']} of {asked} failed{also}."]
    if lines:
        return [*lines, f"Of the {asked} that have an answer none failed, which is no pass."]
    return [f"Nothing found in {asked} questions{also}."]


def exit_status(findings: list[Finding]) -> int:
    """0 where nothing was found; 1 for what was; 2 where a question has no answer, or not all could be seen."""
    results = {finding.result for finding in findings}
    return 2 if "ERROR" in results else 1 if results & {"FAILED", "STOPPED"} else 2 if "UNSEEN" in results else 0


def wrapped(text: str, indent: int = 0) -> str:
    """No line longer than 90, but for one that ends in an address."""
    if "https://" in text:
        return text
    return textwrap.fill(text, 90, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False)
