"""No module of tbtui imports one that imports it: each is understood after those below it."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter

import grimp


def circles(imported: dict[str, set[str]]) -> list[list[str]]:
    """Circles of modules, each with the imports that close it taken out before the next is sought.

    Args:
        imported: module -> the modules that it imports.
    """
    found = []
    while True:
        try:
            TopologicalSorter(imported).prepare()
        except CycleError as error:
            circle: list[str] = error.args[1]
            found.append(circle)
            # graphlib lists it from what is imported to what imports it.
            imported[circle[1]].discard(circle[0])
        else:
            return found


def test_a_circle_is_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": set()}) == []
    (found,) = circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}})
    assert set(found) == {"a", "b", "c"}


def test_there_are_no_circles() -> None:
    """Neither at run time, in functions too, nor for types alone."""
    graph = grimp.build_graph("tbtui", cache_dir=None)
    imported = {each: graph.find_modules_directly_imported_by(each) for each in graph.modules}
    assert "tbtui.ui.context" in imported["tbtui.ui.screens.base"]
    assert [" -> ".join(reversed(circle)) for circle in circles(imported)] == []
