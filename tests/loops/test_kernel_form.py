"""The kernel form: places, brackets, and barriers where a thread would see too much or too little."""

import pytest

from numerate.loops.cuda.barriers import insert_barriers
from numerate.loops.form.ir import Buffer, View
from numerate.loops.kernel.form import (
    Array,
    Assign,
    Barrier,
    For,
    Let,
    Reads,
    ThreadReduce,
    WillWrite,
    Wrote,
    index_variables,
)
from numerate.loops.kernel.values import (
    Call,
    Constant,
    Digit,
    Element,
    Index,
    MultiplyAdd,
    Type,
    Value,
    Variable,
    reduced,
)
from numerate.loops.printers.cpp import CppPrinter
from numerate.loops.printers.cuda import CudaPrinter
from numerate.loops.printers.printer import place

a, b, c, d = map(Variable, "abcd")


def call(operation: str, *operands: Value) -> Call:
    return Call(operation, operands)


@pytest.mark.parametrize(
    ("index", "text"),
    [
        (Index(), "0"),
        (Index(offset=3), "3"),
        (Index((("i", 1),)), "i"),
        (Index((("i", 4), ("j", 1)), 2), "i * 4 + j + 2"),
        (Index((("i", -4),), 8), "i * -4 + 8"),
        (Index((("i", 1),), -1), "i - 1"),
        (Index(((Digit("e", 5, 3), 2),)), "e / 5 % 3 * 2"),
    ],
)
def test_a_place_as_text(index, text):
    assert place(index) == text


def test_what_is_known_of_a_place_is_added_up():
    index = Index.of([(3, 4), ("i", 0), ("j", 2)], 1)
    assert index == Index((("j", 2),), 13)
    assert not index.known
    assert Index.of([(3, 4)], 1).known


@pytest.mark.parametrize(
    ("value", "cpp", "cuda"),
    [
        (call("add", call("add", a, b), c), "a + b + c", "a + b + c"),
        (call("add", a, call("add", b, c)), "a + (b + c)", "a + (b + c)"),
        (call("sub", a, call("mul", b, c)), "a - b * c", "a - b * c"),
        (call("mul", call("sub", a, b), c), "(a - b) * c", "(a - b) * c"),
        (call("neg", call("add", a, b)), "-(a + b)", "-(a + b)"),
        (call("logical_and", call("lt", a, b), call("lt", c, d)), "(a < b) & (c < d)", "(a < b) && (c < d)"),
        (call("exp", call("add", a, b)), "exp(a + b)", "expf(a + b)"),
        (MultiplyAdd(a, b, Constant(-1.5)), "fma(a, b, c(-1.5f))", "fmaf(a, b, (-1.5f))"),
        (Element("k", Index((("i", 1),)), table=True), "c(k[i])", "k[i]"),
        (Constant(True), "c(true)", "true"),
        (Constant(float("inf")), "c(INF)", "__int_as_float(0x7f800000)"),
    ],
)
def test_a_value_in_both_dialects(value, cpp, cuda):
    assert (CppPrinter().value(value), CudaPrinter().value(value)) == (cpp, cuda)


def test_exact_operations_are_not_fused_by_the_cuda_compiler():
    value = Call("mul", (a, b), exact=True)
    assert (CppPrinter().value(value), CudaPrinter().value(value)) == ("a * b", "__fmul_rn(a, b)")


def test_a_sum_of_products_is_fused():
    assert reduced("sum", [[a, b], [c, d]]) == MultiplyAdd(c, d, call("mul", a, b))
    assert reduced("max", [[a], [b]]) == call("maximum", a, b)


def test_a_loop_with_an_array_in_both_dialects():
    body = [Let("y", Type("float", per_example=True), a), Assign(Element("x", Index((("i", 1),))), Variable("y"))]
    array, loop = Array("x", Type("float", per_example=True), 8), For("i", 8, unroll=4, body=body)
    head, rest = "for (int i = 0; i < 8; i++) {", ["  x[i] = y;", "}"]
    assert CppPrinter().indented([array, loop]) == [f"  {s}" for s in ("B x[8];", head, "  B y = a;", *rest)]
    lines = ("float x[8];", "#pragma unroll 4", head, "  float y = a;", *rest)
    assert CudaPrinter().indented([array, loop]) == [f"  {s}" for s in lines]


def test_a_node_without_a_spelling_is_named():
    with pytest.raises(NotImplementedError):
        CppPrinter().statement(Barrier())
    assert CudaPrinter().statement(ThreadReduce("x", "max", "warp")) == ["x = over_warp<maximum>(x);"]


def test_the_variables_of_places_are_found_wherever_they_stand():
    inner = Assign(Element("x", Index((("e1", 3),))), MultiplyAdd(a, Element("y", Index((("f0", 1),))), b))
    assert index_variables([For("f0", 3, body=[inner])]) == {"e1", "f0"}


# ---------------------------------------------------------------- barriers

ROW, COLUMN = Buffer("row", 6), Buffer("column", 6)
MEMORY = {ROW: "row", COLUMN: "column"}
DENSE = View.whole(ROW, (6,))
OWN = ((6,), (1,), 0)


def barriers(*statements) -> int:
    return sum(isinstance(s, Barrier) for s in insert_barriers(list(statements), MEMORY))


def test_a_thread_reads_its_own_element_without_a_barrier():
    assert barriers(Wrote(ROW, OWN), Reads([DENSE], out=DENSE)) == 0


def test_a_thread_waits_for_elements_of_others():
    backwards = DENSE.backwards(0)
    assert barriers(Wrote(ROW, OWN), Reads([backwards], out=DENSE)) == 1
    assert barriers(Wrote(ROW, OWN), Reads([DENSE])) == 1
    assert barriers(Wrote(ROW), Reads([DENSE], out=DENSE)) == 1
    assert barriers(Wrote(ROW, OWN), Wrote(ROW, OWN), Reads([DENSE], out=DENSE)) == 1


def test_a_thread_waits_before_it_overwrites_what_others_may_read():
    assert barriers(Reads([DENSE]), Reads([], writes=[ROW])) == 1
    assert barriers(Reads([DENSE], out=DENSE), Reads([], writes=[ROW])) == 0
    assert barriers(WillWrite("row"), Reads([], writes=[ROW])) == 1
    assert barriers(Reads([DENSE]), Reads([], writes=[COLUMN])) == 0


def test_one_barrier_serves_all_that_came_before_it():
    assert barriers(Wrote(ROW), Wrote(COLUMN), Reads([DENSE]), Reads([View.whole(COLUMN, (6,))])) == 1
    assert barriers(Wrote(ROW), Barrier(), Reads([DENSE])) == 1


def test_barriers_are_inserted_inside_of_loops():
    (loop,) = insert_barriers([For("t", 3, body=[Wrote(ROW), Reads([DENSE])])], MEMORY)
    assert isinstance(loop, For)
    assert [type(s) for s in loop.body] == [Barrier]
