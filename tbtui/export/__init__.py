"""Gives a recorded trial to others: as a cast, as ATIF, as JSON lines, as a page."""

from tbtui.export.files import export_trial as export_trial
from tbtui.export.files import rendered as rendered
