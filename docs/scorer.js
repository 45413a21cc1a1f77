// How the search box of the site ranks pages: guides and errors first, then the reference, and
// the pages for people who work on txn last. Sphinx puts this into its own script.
const INTERNAL = /^(architecture|internals|on-disk|tests|contributing|changelog|transaction-rules|decisions\/|internals-of-tests)/;
const REFERENCE = /^reference\//;

var Scorer = {
  // [page, title, anchor, description, score, file, kind]
  score: ([page, , , , score]) =>
    score - (INTERNAL.test(page) ? 100 : 0) - (REFERENCE.test(page) ? 10 : 0),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
