"""What command lines do, in a word and its objects."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tbtui.view.shell_actions import Action, actions


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("echo hi > out.log\n", [("created", "out.log")]),
        ("echo hi >> out.log\n", [("edited", "out.log")]),
        ("cat > solve.py << 'EOF'\nimport os\nEOF\n", [("created", "solve.py")]),
        ("mkdir -p a/b && cd a/b && touch x.py\n", [("created", "a/b/"), ("created", "x.py")]),
        ("cp a.txt b.txt\n", [("copied", "a.txt", "b.txt")]),
        ("mv a.txt dir/\n", [("moved", "a.txt", "dir/")]),
        ("rm -rf build\n", [("removed", "build")]),
        ("sed -i 's/a/b/' main.c\n", [("edited", "main.c")]),
        ("sed -n 1,5p main.c\n", [("read", "main.c")]),
        ("sudo apt-get install -y gcc make\n", [("installed", "gcc", "make")]),
        ("python3 -m pip install numpy\n", [("installed", "numpy")]),
        ("FOO=1 timeout 30 python solve.py --fast\n", [("ran", "python solve.py")]),
        ("python -m pytest tests\n", [("ran", "pytest")]),
        ("git commit -m 'all of it'\n", [("ran", "git commit")]),
        ("grep -rn TODO src | wc -l > n.txt\n", [("created", "n.txt")]),
        ("echo hi | tee out.log\n", [("created", "out.log")]),
        ("make 2>/dev/null; ls -la\n", [("ran", "make"), ("looked around",)]),
        ("cd /app\n", []),
        ("C-c", [("ran", "C-c")]),
        ("", []),
    ],
)
def test_a_line_is_told_by_what_it_leaves_behind(line: str, found: list[tuple[str, ...]]) -> None:
    said = [(action.kind, *action.objects) for action in actions(line)]
    if line == "C-c":
        assert said in ([], found)
    else:
        assert said == found


def test_of_a_move_only_the_new_name_is_made() -> None:
    assert Action("moved", ("a", "b")).made == ("b",)
    assert Action("created", ("a", "b")).made == ("a", "b")
    assert Action("read", ("a",)).made == ()


@given(st.text(alphabet=st.characters() | st.sampled_from(list("'\"|&;<>(){}$ \n-./ab"))))
@example("'")
@example("> >")
@example("| |")
@example("sudo timeout")
@example("pip install")
@example("cat <<")
def test_whatever_is_typed_has_actions(text: str) -> None:
    for action in actions(text):
        assert all(isinstance(each, str) for each in action.objects)
