"""Answers to questions about a machine, from the rows of result files: a module of this folder with an ``ORDER`` is one question."""

from types import ModuleType

from dlbench.analysis.answers.engine import making
from dlbench.analysis.answers.engine.question import CPU_ONLY, Answer, Missing
from dlbench.analysis.read.runs import merged
from dlbench.analysis.read.table import Results
from dlbench.core import files


def topics() -> list[str]:
    """Return the topics of the questions, in their order."""
    return [question.QUESTION.topic for question in files.ordered(__name__)]


def answers(results: Results) -> tuple[Answer | Missing, ...]:
    """Return the answer to each question, or what is missing for it, in the order of questions.

    Answers about a CPU alone come first if there is no accelerator. Files of one machine and software count as one (`runs.merged`). No
    answer rests on cases that are not usable.
    """
    results = merged(results)
    found = [_answer(question, results) for question in files.ordered(__name__)]
    return tuple(sorted(found, key=lambda each: not (isinstance(each, Answer) and each.label == CPU_ONLY)))


def answer_to(question: ModuleType, results: Results) -> Answer | Missing:
    """Return the answer of all rows to the question of one module."""
    return making.answer(question.QUESTION, results)


def _answer(question: ModuleType, results: Results) -> Answer | Missing:
    """Return the answer of usable rows; if only unusable rows have one, it is missing for that reason."""
    usable = results.usable
    found = answer_to(question, usable)
    if isinstance(found, Answer) or not usable.set_aside:
        return found
    whole = answer_to(question, results)
    reason = "the cases that would answer it were throttled or disturbed in most rounds"
    return whole if isinstance(whole, Missing) else Missing(whole.question, reason, why="not usable: throttled or disturbed")
