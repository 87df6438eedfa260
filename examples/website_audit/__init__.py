"""A weekly website audit whose report and mail are written in one transaction.

Read ``job.py`` first: it is the whole point, in one page. Around it stand

- ``customers``: for whom, and when their weeks begin;
- ``site``, ``markup``, ``folder``, ``crawl``, ``fetch``: collecting pages;
- ``findings`` and ``report``: pure functions from pages to findings to a mail;
- ``schema``: the job's own table, beside the outbox in one database;
- ``demo``: a rehearsal of all of it, a crash included.

``python -m examples.website_audit --database URL --week 2026-W48`` runs it.
"""
