"""What was measured, as one page of HTML: benchmarks, trainings and timelines of a folder.

`reading` turns files into `records`, the modules of `sections` turn records into sections with
plots and tables (`document`), `drawing` draws the plots and `page` writes the page; all of these
are pure. ``python -m wagma report`` is the command, docs/report.md says what is in a page.
"""
