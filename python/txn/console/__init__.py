"""`txn console`: the state of a cluster, or of a stopped directory, as pages in a browser.

`site` holds what every page shares: the way to the facts, the sessions, the templates. `guards`
checks each request. `access` logs users in. `pages/` has one package for each page: its routes,
queries and templates. `serve` runs the process. A page asks the functions that the commands ask,
so nothing is computed twice. Pages are whole HTML without any script. `assets/console.js` replaces
the part that changes, for a browser that runs scripts.
"""
