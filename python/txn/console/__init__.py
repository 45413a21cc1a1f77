"""`txn console`: the state of a cluster, or of a stopped directory, as pages in a browser.

`site` holds the parts that all pages share: the way to the facts, the sessions, the templates.
`guards` checks each request. `access` logs users in. `pages/` has one package for each page: its
routes, queries and templates. `registry/` decodes records by schemas. `serve` runs the process. A
page asks the functions that the commands ask, so nothing is computed twice. Pages are whole HTML
without any script. `assets/console.js` replaces the part that changes, for a browser that runs
scripts.
"""
