"""Answers to questions about a machine, from the rows of result files: a module of this folder with an ``ORDER`` is one question."""

from types import ModuleType

from dlbench.analysis.answers.engine import making
from dlbench.analysis.answers.engine.question import CPU_ONLY, Answer, Missing
from dlbench.analysis.read.runs import merged
from dlbench.analysis.read.table import Results
from dlbench.core import files


def topics() -> list[str]:
    """Return the topics of the questions, in the order in which they are asked."""
    return [question.QUESTION.topic for question in files.ordered(__name__)]


def answers(results: Results) -> tuple[Answer | Missing, ...]:
    """Return the answer to each question, or what is missing for it, in the order in which they are asked.

    What a CPU alone is enough for goes first where there is no accelerator to ask about. Files of one machine and software count as one:
    see `runs.merged`. No answer rests on cases that are not usable.
    """
    results = merged(results)
    found = [_answer(question, results) for question in files.ordered(__name__)]
    return tuple(sorted(found, key=lambda each: not (isinstance(each, Answer) and each.label == CPU_ONLY)))


def answer_to(question: ModuleType, results: Results) -> Answer | Missing:
    """Return the answer to the question of one module by all of these rows."""
    return making.answer(question.QUESTION, results)


def _answer(question: ModuleType, results: Results) -> Answer | Missing:
    usable = results.usable
    found = answer_to(question, usable)
    if isinstance(found, Answer) or not usable.set_aside:
        return found
    whole = answer_to(question, results)
    reason = "the cases that would answer it were throttled or disturbed in most rounds"
    return whole if isinstance(whole, Missing) else Missing(whole.question, reason, why="not usable: throttled or disturbed")
