"""The searches of a run: their tries, and what each comes to."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from dlbench.core.measurement import Measurement
from dlbench.core.model import Case, Policy, Signature, Status, settings_text
from dlbench.harness.plan.adaptive import AdaptivePlan, policy_of_tries
from dlbench.harness.plan.rate_search import RateSearch
from dlbench.harness.schedule import BudgetSpent, Fault, Task

Measured = tuple[Measurement, Fault]
"""A measurement, and whether the device is at fault."""
Measure = Callable[[Case, Policy], Measured | None]
"""Has a case measured; None when interrupted. Raises BudgetSpent."""


@dataclass(slots=True)
class Searches:
    """Measures the cases that leave parameters open: by tries, once, and those for the fastest then by what was found, in each round."""

    signatures: Mapping[str, Signature]
    policy: Policy
    save: Callable[[Measurement], object]
    """Takes each try that stands as soon as it was made."""
    tries: list[Measurement]
    """Those of the file so far; each that is made is added."""

    def measure(self, task: Task, number: int, measure: Measure) -> Measured | None:
        """Have a task measured in a round, by a search where it stands for one; None when interrupted.

        Raises BudgetSpent where the budget left no time for a try or, in the end, for what was found, with a row that says what was found.
        """
        plan = AdaptivePlan.of(task.case, self.signatures.get(task.case.workload))
        if plan is None:
            return measure(task.case, self.policy)

        def cut_short(spent: BudgetSpent, when: str) -> BudgetSpent:
            """Return the exception with the row of the search that the budget ended."""
            reason = f"the budget ran out {when}; go on with --resume and a larger --budget"
            row = Measurement(task.case, number, Status.SKIPPED, reason, task.side.name)
            return BudgetSpent(str(spent), plan.unfinished(row, tries))

        tries = [each for each in self.tries if each.side == task.side.name and plan.is_try(each.case)]
        while (case := plan.next(tries)) is not None:
            try:
                ended = measure(case, policy_of_tries(self.policy))
            except BudgetSpent as spent:
                if not tries:
                    raise
                made = f"{len(tries)} {'try' if len(tries) == 1 else 'tries'}"
                raise cut_short(spent, f"after {made}") from None
            if ended is None:
                return None
            tried, fault = replace(ended[0], side=task.side.name), ended[1]
            if fault or tried.status is Status.SKIPPED:  # it says nothing of the case, which can still be tried
                reason = f"{settings_text(plan.values(tried))}: {tried.reason}"
                return plan.unfinished(replace(tried, case=task.case, round=number, reason=reason), tries), fault
            self.save(tried)
            self.tries.append(tried)
            tries.append(tried)
        outcome = plan.outcome(tries, number)
        if outcome.status is not Status.OK or isinstance(plan, RateSearch) or plan.for_largest:
            return outcome, Fault.NONE
        try:
            ended = measure(plan.with_values(outcome.found), self.policy)
        except BudgetSpent as spent:
            raise cut_short(spent, "before that was measured") from None
        return ended and (replace(ended[0], case=task.case, round=number, found=outcome.found), ended[1])
