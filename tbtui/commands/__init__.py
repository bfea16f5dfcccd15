"""What commands of `tbtui` do once `tbtui.cli` has read their arguments: they print and return."""
