"""Rule notation: its meaning, that it prints as it was read, and what it refuses."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import InvalidRule
from planner.ir import notation
from planner.ir.notation import Dim, Pattern, parse_rule
from planner.ir.sharding import Reduction

PAGE = Path(__file__).parents[2] / "docs" / "concepts" / "rules.md"
PRINTED = [
    "b m k, k n -> b m n",
    "b s (h d) -> b h s d",
    "b {p|z|q} -> b z; size p=3",
    "1 n, m n -> m n",
    "... k, k -> ... k",
    "m k -> m; max k",
    "m k -> m k; blocked k",
    "m k -> m k; blocked m k",
    "x y, x y -> x y; linear 0+1",
    "x k, k y -> x y; linear 0, 1",
    "x, x -> x; linear 0+1; commutes max 0; commutes product 0+1",
    "[], n -> n",
    "-> n",
    "a -> []",
    "{z0} -> z0",
    "a b -> a, b; min b; max a; linear 0",
]

# rule, what, got, wanted (parts of each)
REFUSED = [
    ("a b", "no single '->'", None, "operands -> results"),
    ("a -> b -> c", "no single '->'", None, "operands -> results"),
    ("a a -> a", "loop repeated in one term", "a a", "once"),
    ("a (b a) -> a", "loop repeated in one term", "a (b a)", "once"),
    ("... ... -> a", "loop repeated in one term", "... ...", "once"),
    ("2 a -> a", "not a loop name", "2", "a-z"),
    ("A -> A", "not a loop name", "A", "a-z"),
    ("_0 ... -> ...", "not a loop name", "_0", "a-z"),
    ("{} -> a", "not a loop name", "", "a-z"),
    ("{a b} -> a", "not a loop name", "a b", "a-z"),
    ("(a|b) -> a", "not a loop name", "a|b", "a-z"),
    ("(... a) -> a", "not a loop name", "...", "a-z"),
    ("averyveryverylongname -> a", "not a loop name", "averyveryverylongname", "a-z"),
    ("a (b -> a b", "brackets do not match", "a (b", "'('"),
    ("a) b -> a b", "brackets do not match", "a) b", "')'"),
    ("(a (b c)) -> a b c", "brackets do not match", "(a (b c))", "'('"),
    ("a {b -> a b", "brackets do not match", "a {b", "'{'"),
    ("a -> a; split a", "unknown modifier", "split", "blocked, opaque, linear, ring, size, sum, max"),
    ("a -> a;", "unknown modifier", "", "blocked"),
    ("a -> a; generic a", "unknown modifier", "generic", "bitwise_xor"),
    ("a -> a; max b", "modifier names no loop", "b", "['a']"),
    ("a -> a; blocked b", "modifier names no loop", "b", "['a']"),
    ("... a -> ... a; blocked ...", "modifier names no loop", "...", "['a']"),
    ("a -> a; size b=3", "modifier names no loop", "b", "['a']"),
    ("a -> a; size a", "size modifier", "a", "loop=size"),
    ("a -> a; size a=-1", "size modifier", "a=-1", "loop=size"),
    ("a k -> a; max k; min k", "modifier repeated", "['k', 'k']", "once"),
    ("a k -> a; size k=3 k=4", "modifier repeated", "['k', 'k']", "once"),
    ("a -> a; linear 1", "linear group", "1", "below 1"),
    ("a -> a; linear", "linear group", "", "below 1"),
    ("a -> a; linear 0+", "linear group", "0+", "below 1"),
    ("a -> a; commutes max 1", "linear group", "1", "below 1"),
    ("a -> a; commutes max", "linear group", "", "below 1"),
    ("a -> a; commutes sum 0", "reduction that commutes", "sum 0", "linear"),
    ("a -> a; commutes", "reduction that commutes", "", "max, min"),
    ("-> a; linear 0", "linear group", "0", "below 0"),
    ("a -> " + "a " * 3000, "rule too long", "6", "4096"),
]


@pytest.mark.parametrize("text", PRINTED)
def test_a_rule_prints_as_it_was_read(text: str) -> None:
    assert str(parse_rule(text)) == text


@pytest.mark.parametrize(("text", "what", "got", "wanted"), REFUSED)
def test_a_wrong_rule_says_what_where_got_and_wanted(text: str, what: str, got: str | None, wanted: str) -> None:
    with pytest.raises(InvalidRule) as caught:
        parse_rule(text)
    error = caught.value
    assert error.where.startswith("rule 'a"[:6])
    assert what in error.what
    assert got is None or got in (error.got or "")
    assert wanted in (error.wanted or "")


def test_a_rule_is_read_into_dims_loops_and_modifiers() -> None:
    assert parse_rule("b (h d), {p|z} -> h 1; max b; blocked d; size p=3; linear 0+1, 1") == Pattern(
        operands=((Dim(("b",)), Dim(("h", "d"))), (Dim(("p", "z"), joined=True),)),
        results=((Dim(("h",)), Dim(())),),
        reductions=(("b", Reduction.MAX),),
        blocked=("d",),
        linear=((0, 1), (1,)),
        sizes=(("p", 3),),
    )


def test_spaces_do_not_matter() -> None:
    assert parse_rule(" b  ( h d ),{ p | z }->h ;max  b; linear 0 + 1 ") == parse_rule(
        "b (h d), {p|z} -> h; max b; linear 0+1"
    )


LOOPS = st.sampled_from("abcdefg")


@st.composite
def term(draw: st.DrawFn) -> tuple[Dim, ...]:
    loops = draw(st.lists(LOOPS, unique=True, max_size=6))
    dims = []
    while loops:
        taken = [loops.pop() for _ in range(draw(st.integers(1, len(loops))))]
        dims.append(Dim(tuple(taken), joined=draw(st.booleans())))
    if draw(st.booleans()):
        dims.insert(draw(st.integers(0, len(dims))), Dim(("...",)))
    return (*dims, *[Dim(())] * draw(st.integers(0, 2)))


@given(st.lists(term(), max_size=3), st.lists(term(), min_size=1, max_size=2), st.data())
def test_any_rule_read_back_is_the_rule(
    operands: list[tuple[Dim, ...]], results: list[tuple[Dim, ...]], data: st.DataObject
) -> None:
    loops = sorted({loop for t in (*operands, *results) for dim in t for loop in dim.loops} - {"..."})
    chosen = st.lists(st.sampled_from(loops), unique=True) if loops else st.just([])
    group = st.lists(st.integers(0, max(len(operands) - 1, 0)), min_size=1, max_size=2)
    pattern = Pattern(
        tuple(operands),
        tuple(results),
        tuple((loop, data.draw(st.sampled_from(Reduction))) for loop in data.draw(chosen)),
        tuple(data.draw(chosen)),
        tuple(tuple(numbers) for numbers in data.draw(st.lists(group, max_size=2 if operands else 0))),
        tuple((loop, data.draw(st.integers(0, 99))) for loop in data.draw(chosen)),
        tuple(
            (data.draw(st.sampled_from([kind for kind in Reduction if kind is not Reduction.SUM])), tuple(numbers))
            for numbers in data.draw(st.lists(group, max_size=2 if operands else 0))
        ),
    )
    assert parse_rule(str(pattern)) == pattern


def test_the_page_on_rules_shows_the_module_s_rules_and_all_of_them_parse() -> None:
    shown = [rule.replace("\\|", "|") for rule in re.findall(r"^\| `(.*)` \|", PAGE.read_text(), re.MULTILINE)]
    assert shown == re.findall(r"^    (\S.*?) {2,}", notation.__doc__ or "", re.MULTILINE)
    assert [str(parse_rule(rule)) for rule in shown] == shown
