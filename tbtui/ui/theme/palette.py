"""The styles that panes draw with, in a theme's colours."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from rich.color import Color as RichColor
from rich.style import Style
from textual.color import Color, Gradient

from tbtui.ui.theme.colours import legible_on
from tbtui.ui.theme.themes import ThemeFile
from tbtui.view.state import SPENDINGS, Spending

HEAT_LEVELS = 12


def _style(color: str | None = None, *, on: str | None = None, bold: bool | None = None) -> Style:
    return Style(
        color=None if color is None else Color.parse(color).rich_color,
        bgcolor=None if on is None else Color.parse(on).rich_color,
        bold=bold,
    )


def _grounds(heat: tuple[str, ...], sixteen: bool) -> list[Color]:
    """`HEAT_LEVELS - 1` grounds. The terminal's own sixteen colours can't be blended."""
    levels = [index / (HEAT_LEVELS - 1) for index in range(1, HEAT_LEVELS)]
    if sixteen:
        return [Color.parse(heat[min(len(heat) - 1, int(at * len(heat)))]) for at in levels]
    gradient = Gradient.from_colors(*heat)
    return [gradient.get_color(at) for at in levels]


@dataclass(frozen=True)
class Palette:
    """A theme as the styles that panes draw with."""

    file: ThemeFile

    @property
    def name(self) -> str:
        return self.file.name

    @cached_property
    def ground(self) -> Style:
        """What lies under everything."""
        return _style(self.file.colors.foreground, on=self.file.colors.background)

    @cached_property
    def text(self) -> Style:
        return _style(self.file.colors.foreground)

    @cached_property
    def strong(self) -> Style:
        return _style(self.file.colors.foreground, bold=True)

    @cached_property
    def muted(self) -> Style:
        return _style(self.file.colors.muted)

    @cached_property
    def faint(self) -> Style:
        return _style(self.file.colors.faint)

    @cached_property
    def line(self) -> Style:
        return _style(self.file.colors.line)

    @cached_property
    def accent(self) -> Style:
        return _style(self.file.colors.accent)

    @cached_property
    def attention(self) -> Style:
        return _style(self.file.colors.attention, bold=True)

    @cached_property
    def good(self) -> Style:
        return _style(self.file.colors.good)

    @cached_property
    def bad(self) -> Style:
        return _style(self.file.colors.bad)

    @cached_property
    def infrastructure(self) -> Style:
        return _style(self.file.colors.infrastructure)

    @cached_property
    def frozen(self) -> Style:
        return _style(self.file.colors.frozen, bold=True)

    @cached_property
    def spending(self) -> dict[Spending, Style]:
        """What a trial's time goes to."""
        colours = zip(SPENDINGS, self.file.colors.spending, strict=True)
        return {name: _style(colour) for name, colour in colours}

    @cached_property
    def held_out(self) -> Style:
        return _style(self.file.colors.held_out)

    @cached_property
    def training(self) -> Style:
        return _style(self.file.colors.training)

    @cached_property
    def on_surface(self) -> Style:
        return _style(on=self.file.colors.surface)

    @cached_property
    def badge(self) -> Style:
        """What must not be overlooked, and nobody has to do anything about."""
        colors = self.file.colors
        return _style(colors.background, on=colors.attention)

    @cached_property
    def on_raised(self) -> Style:
        return _style(on=self.file.colors.raised)

    @cached_property
    def selected(self) -> Style:
        return _style(self.file.colors.on_accent, on=self.file.colors.accent, bold=True)

    @cached_property
    def terminal(self) -> Style:
        return _style(self.file.terminal.foreground, on=self.file.terminal.background)

    @cached_property
    def ansi(self) -> tuple[RichColor, ...]:
        return tuple(Color.parse(value).rich_color for value in self.file.terminal.ansi)

    @cached_property
    def heat(self) -> tuple[Style, ...]:
        """`HEAT_LEVELS` styles from sure to surprised; text stays legible on each."""
        colors = self.file.colors
        styles = [Style(color=Color.parse(colors.foreground).rich_color)]
        for ground in _grounds(colors.heat, self.file.sixteen):
            text = legible_on(ground, *map(Color.parse, (colors.foreground, colors.background)))
            styles.append(Style(color=text.rich_color, bgcolor=ground.rich_color))
        return tuple(styles)

    def reward(self, value: float | None) -> Style:
        """The style of a reward, from bad to good; None is infrastructure's."""
        if value is None:
            return self.infrastructure
        if value <= 0 or value >= 1:
            return self.good if value >= 1 else self.bad
        if self.file.sixteen:
            return self.attention
        blend = Color.parse(self.file.colors.bad).blend(Color.parse(self.file.colors.good), value)
        return Style(color=blend.rich_color)
