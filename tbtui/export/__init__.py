"""Gives a recorded trial to others: as a cast, as ATIF, as JSON lines, as a page."""

from tbtui.export.trial import ExportError as ExportError
from tbtui.export.trial import export_trial as export_trial
from tbtui.export.trial import rendered as rendered
