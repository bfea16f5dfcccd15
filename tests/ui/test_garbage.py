"""What the app leaves behind goes by itself: the collector would come in the middle of a paint."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator

import pytest
from rich.segment import Segment
from textual.events import MouseMove

from tbtui.journal.rundir import RunDirectory
from tbtui.ui.app import TbtuiApp
from tbtui.ui.idle_collector import IDLE_SEC, IdleCollector
from tbtui.ui.terminal.emulator import Emulator
from tbtui.ui.textual_seam import PaintedRow, cropped
from tests.ui.picture import PastHost, settle
from tests.ui.synthetic import START


@pytest.fixture
def no_collector() -> Iterator[None]:
    thresholds = gc.get_threshold()
    gc.disable()
    gc.freeze()  # what other tests have left need not be looked through
    yield
    gc.set_threshold(*thresholds)
    gc.unfreeze()
    gc.enable()


@pytest.mark.usefixtures("no_collector")
async def test_rows_go_when_others_take_their_place(past_app: Callable[..., TbtuiApp]) -> None:
    app = past_app()
    async with app.run_test(size=(160, 45)) as pilot:
        await settle(app)
        counts = []
        for _ in range(4):
            for key in ("right", "right", "left", "left"):
                await pilot.press(key)
            counts.append(sum(isinstance(each, PaintedRow) for each in gc.get_objects()))
    assert counts[0] > 45
    # Those of the same paint, but for what a pane remembers of its last rows.
    assert max(counts) < counts[0] + 45


def test_a_row_is_cut_as_any_strip_is() -> None:
    row = PaintedRow([*cropped(PaintedRow.blank(3), 0, 4)], 4)
    for cuts in ([4], [2, 4], [4, 9], [1, 2, 3], [5], []):
        plain = super(PaintedRow, row).divide(cuts)
        assert [part.text for part in row.divide(cuts)] == [part.text for part in plain]
    assert row.divide([4]) == [row]


@pytest.mark.usefixtures("no_collector")
def test_a_row_goes_after_it_was_cropped_to_what_it_is() -> None:
    def rows() -> int:
        return sum(isinstance(each, PaintedRow) for each in gc.get_objects())

    before = rows()
    assert cropped(PaintedRow([Segment("wide")], 4), 0, 4).text == "wide"
    assert rows() == before


@pytest.mark.usefixtures("no_collector")
def test_a_terminal_that_nobody_shows_takes_no_memory() -> None:
    emulator = Emulator(160, 40)
    emulator.feed("\x1b[31mhello\r\n" * 100 + "\x1b[?1049h")
    board = weakref.ref(emulator._board)
    page = weakref.ref(emulator._board.display.page)
    assert board() is not None
    del emulator
    assert board() is None
    assert page() is None


@pytest.mark.usefixtures("no_collector")
def test_the_collector_comes_when_nobody_waits() -> None:
    now = 0.0
    collector = IdleCollector(lambda: now)
    frozen = gc.get_freeze_count()
    collector.begin()
    assert gc.isenabled()
    assert gc.get_freeze_count() > frozen  # what has been made before is not looked at
    made: list[list[None]] = []

    def collections() -> list[int]:
        return [each["collections"] for each in gc.get_stats()]

    def clear_up(*, objects: int = 0) -> list[int]:
        """How often it has looked through the objects of each age."""
        before = collections()
        made.extend([] for _ in range(objects))
        collector.collect()
        return [after - was for after, was in zip(collections(), before, strict=True)]

    # Little is worth no look; much is looked through where it is new,
    now += 1
    assert clear_up(objects=100) == [0, 0, 0]
    assert clear_up(objects=20_000) == [0, 1, 0]
    # and all of it only once in a while, and when nobody has touched a key for longer.
    now += 100
    collector.note_input()
    assert clear_up(objects=20_000) == [0, 0, 0]
    now += 10
    assert clear_up() == [0, 0, 1]
    assert clear_up() == [0, 0, 0]
    now += 500
    assert clear_up() == [0, 0, 0]
    now += 200
    assert clear_up() == [0, 0, 1]


@pytest.mark.usefixtures("no_collector")
async def test_an_app_that_has_ended_leaves_the_collector_to_itself(
    run_directory: RunDirectory,
) -> None:
    before = gc.get_threshold()
    app = TbtuiApp(PastHost(run_directory), clock=lambda: START + 40.0)
    async with app.run_test() as pilot:
        while gc.get_threshold() == before:
            await pilot.pause(0.01)
    assert gc.isenabled()
    assert gc.get_threshold() == before


async def test_a_key_and_the_mouse_disturb(past_app: Callable[..., TbtuiApp]) -> None:
    now = 0.0
    app = past_app(monotonic=lambda: now)
    async with app.run_test(size=(160, 45)) as pilot:
        for disturb in (pilot.press("x"), pilot.hover()):
            now += 2 * IDLE_SEC
            assert app.idle_collector.idle
            await disturb
            assert not app.idle_collector.idle
        now += 2 * IDLE_SEC
        app.post_message(MouseMove(None, 1, 1, 1, 0, 0, False, False, False))
        await pilot.pause()
        assert not app.idle_collector.idle
