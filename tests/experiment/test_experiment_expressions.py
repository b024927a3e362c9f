"""One grammar reads expectations, statistics and formulas, and its errors have a place."""

import pytest

from loopscope.experiment import formula
from loopscope.experiment.expect_lines import parse_line
from loopscope.experiment.formula import Call, Column, Constant
from loopscope.experiment.grammar import ExpressionError
from loopscope.experiment.statistic_names import Subject, parse_subject


def text(node):
    """A formula with all its brackets."""
    if isinstance(node, Column):
        return node.name
    if isinstance(node, Constant):
        return repr(node.value)
    return f"({' '.join([node.name, *map(text, node.arguments)])})"


@pytest.mark.parametrize(
    ("given", "meaning"),
    [
        ("a or b and c = d", "(or a (and b (= c d)))"),
        ("not a = b and c", "(and (not (= a b)) c)"),
        ("a = not b = c", "(= a (not (= b c)))"),
        ("a = b < c is null", "(= a (< b (is null c)))"),
        ("a between 1 + 1 and 2 and b", "(and (and (>= a (+ 1 1)) (<= a 2)) b)"),
        ("x not in (1, 2) or y is not null", "(or (not (in x 1 2)) (not (is null y)))"),
        ("a || b + c * -d", "(|| a (+ b (* c (negative d))))"),
        ("a + b % c // d", "(% (+ a b) (// c d))"),
        ("90Mbit/s", "(/ 90000000 s)"),
        ("end - start > 1.5ms", "(> (- end start) 1500000)"),
        ("case when a then 1 when b then end else 'it''s' end", '(if a 1 (if b end "it\'s"))'),
        ('COALESCE("a b", .5, 1_000) -- a note', "(coalesce a b 0.5 1000)"),
        ("- -5 <> 5 /* both */;", "(!= 5 5)"),
    ],
)
def test_a_formula(given, meaning):
    assert text(formula.parse(given)) == meaning


@pytest.mark.parametrize(
    ("given", "message", "hint"),
    [
        ("a bteween 1 and 2", "at its column 3: expected an operator or the end", "between"),
        ("(a", "at its column 3: expected )", None),
        ("a ^ b", "has ^ in it", "!="),
        ("sum(a)", "is of several rows", None),
        ("count(*, a)", "at its column 8", None),
        ("a.b", "at its column 2", None),
    ],
)
def test_a_mistake_in_a_formula_has_a_place(given, message, hint):
    with pytest.raises(ExpressionError) as refused:
        formula.parse(given)
    assert message in refused.value.message
    assert refused.value.hint == hint


def test_a_formula_may_be_long_but_not_deep():
    long = " and ".join(["a > 1"] * 300)
    assert isinstance(formula.parse(long), Call)
    with pytest.raises(ExpressionError, match="nested too deeply"):
        formula.parse("(" * 5000 + "not " * 5000 + "a" + ")" * 5000)


@pytest.mark.parametrize(
    ("given", "subject"),
    [
        ("loop.p99.9", Subject("loop", None, "p99.9")),
        (" loop ", Subject("loop", None, None)),
        ("l-p[a-b/s:out->b/s:in].mean", Subject("l-p", ("a-b/s:out", "b/s:in"), "mean")),
    ],
)
def test_a_statistic(given, subject):
    found = parse_subject(given)
    assert (found.name, found.part, found.stat) == (subject.name, subject.part, subject.stat)


@pytest.mark.parametrize("given", ["loop .p99", "loop. p99", "a b", "loop[a].p99", "a.b.c", ""])
def test_what_is_no_statistic(given):
    with pytest.raises(ExpressionError):
        parse_subject(given)


def test_a_mistake_in_an_expectation_has_a_place_and_the_nearest_word():
    with pytest.raises(ExpressionError) as refused:
        parse_line("loop < 10ms, no two mises in a row")
    assert "at its column 21" in refused.value.message
    with pytest.raises(ExpressionError) as refused:
        parse_line("loop compleet")
    assert "at its column 6" in refused.value.message
    assert refused.value.hint == "complete"
