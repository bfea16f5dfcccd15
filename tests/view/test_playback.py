"""The clock of a replay."""

from __future__ import annotations

from tbtui.view.reading import SPEEDS, Playback


def test_time_passes_only_while_it_plays_and_stops_at_the_end() -> None:
    clock = Playback(100.0, 110.0, 100.0)
    clock.pass_time(3.0)
    assert clock.position == 100.0
    clock.toggle()
    clock.change_speed(1)
    clock.pass_time(3.0)
    assert clock.position == 106.0
    clock.pass_time(60.0)
    assert (clock.position, clock.playing) == (110.0, False)
    clock.toggle()
    assert (clock.position, clock.playing) == (100.0, True)


def test_it_stands_still_at_a_stop_but_can_be_played_on_from_there() -> None:
    clock = Playback(0.0, 100.0, 0.0, playing=True)
    clock.pass_time(50.0, stop=20.0)
    assert (clock.position, clock.playing) == (20.0, False)
    clock.toggle()
    clock.pass_time(5.0, stop=20.0)
    assert clock.position == 25.0


def test_places_and_speeds_stay_within_bounds() -> None:
    clock = Playback(10.0, 20.0, 10.0)
    clock.go_to(5.0)
    assert clock.position == 10.0
    clock.go_to(15.0)
    assert clock.share == 0.5
    clock.change_speed(100)
    assert clock.speed == SPEEDS[-1] == 64
    clock.change_speed(-100)
    assert clock.speed == SPEEDS[0] == 0.25
