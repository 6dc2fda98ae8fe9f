"""Pictures of graphs: nothing overlaps, and lines cross no node."""

from itertools import combinations, pairwise

from hypothesis import given
from hypothesis import strategies as st

from mortal_steps.recipes.report.graph import lay_out


@st.composite
def graphs(draw):
    names = [f"s{number}" for number in range(draw(st.integers(1, 9)))]
    return {
        name: draw(st.lists(st.sampled_from(names[:number]), unique=True)) if number else []
        for number, name in enumerate(names)
    }


def picture_of(parents):
    return lay_out(parents, {name: (100.0, 40.0 + 7 * len(name)) for name in parents}, margin=5.0)


@given(graphs())
def test_nodes_overlap_nowhere_and_stand_below_what_they_begin_with(parents):
    found = picture_of(parents)
    for one, other in combinations(found.nodes.values(), 2):
        beside = one.x + one.width <= other.x + 1e-6 or other.x + other.width <= one.x + 1e-6
        below = one.y + one.height < other.y or other.y + other.height < one.y
        assert beside or below
    for child, those in parents.items():
        for parent in those:
            above = found.nodes[parent]
            assert above.y + above.height < found.nodes[child].y


@given(graphs())
def test_all_is_inside_the_picture(parents):
    found = picture_of(parents)
    points = [point for line in found.lines for point in line.points]
    points += [(box.x, box.y) for box in found.nodes.values()]
    points += [(box.x + box.width, box.y + box.height) for box in found.nodes.values()]
    assert all(5 - 1e-6 <= x <= found.width - 5 + 1e-6 for x, _ in points)
    assert all(5 - 1e-6 <= y <= found.height - 5 + 1e-6 for _, y in points)


@given(graphs())
def test_a_line_leads_from_the_one_to_the_other_and_through_no_node(parents):
    found = picture_of(parents)
    assert {(line.parent, line.child) for line in found.lines} == {
        (parent, child) for child, those in parents.items() for parent in those
    }
    for line in found.lines:
        assert all(before[1] <= after[1] for before, after in pairwise(line.points))
        for name, box in found.nodes.items():
            if name in (line.parent, line.child):
                continue
            for (x, y), (_, end) in list(pairwise(line.points))[::2]:  # the straight parts
                inside = box.x < x < box.x + box.width
                assert not (inside and y < box.y + box.height and end > box.y)


def test_a_chain_is_one_straight_line():
    found = picture_of({"a": [], "b": ["a"], "c": ["b"]})
    assert {x for line in found.lines for x, _ in line.points} == {found.width / 2}


def test_a_node_without_parents_stands_right_above_its_first_child():
    found = picture_of({"a": [], "b": ["a"], "data": [], "c": ["b", "data"]})
    assert found.nodes["data"].y == found.nodes["b"].y
