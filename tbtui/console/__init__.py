"""A run without the app: readable lines, or one JSON event a line, read from the journal."""

from tbtui.console.lines import HumanLines
from tbtui.console.printing import Printer, follow, json_line
from tbtui.console.progress import ProgressLine
from tbtui.console.texts import end_line

__all__ = ["HumanLines", "Printer", "ProgressLine", "end_line", "follow", "json_line"]
