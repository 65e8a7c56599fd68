"""The local page that shows a results folder, live while runs go on: ``numerate page``.

Reading order: ``index`` (the runs as small tables in memory), ``sizes`` (which runs belong to which size of an
experiment), ``cells`` and ``computing`` (numbers beside published ones), the views ``start``, ``experiment``, ``runs``,
``run``, ``leaderboard`` and ``compare`` (an address -> its data), ``spreadsheet`` and ``offline`` (the same as CSV and
as one HTML file), ``server``. The browser's part is in ``web/`` of the repository, its build in ``bundle/``.
"""
