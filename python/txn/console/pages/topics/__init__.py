"""Topics, their partitions, and their records: in the log and as a reader sees them."""

from typing import Final

from txn.console.pages.topics import browse, listing, searching
from txn.console.site import Download, Page, Stream, View

PAGE: Final = Page(
    "Topics",
    "/topics",
    (
        ("/topics", View("pages/topics/overview.html", listing.overview)),
        ("/topics/{topic}", View("pages/topics/topic.html", listing.topic)),
        ("/topics/{topic}/search", Stream(searching.begin, "text/html")),
        ("/topics/{topic}/{index}", View("pages/topics/records.html", browse.records)),
        (
            "/topics/{topic}/{index}/{offset}",
            View("pages/topics/record.html", browse.record),
        ),
        ("/topics/{topic}/{index}/{offset}/{part}", Download(browse.download)),
    ),
)
