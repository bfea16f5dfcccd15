"""The starter tasks: eight kinds of small file work with random names and words.

`world` draws tasks, `write` turns them into Harbor task directories. `python -m
tbtui.catalog.starter DIRECTORY` writes the committed set of 48 + 24 tasks, the same bytes each
time.
"""
