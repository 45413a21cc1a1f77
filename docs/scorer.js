// How the search box of the site finds and ranks pages. Sphinx puts this into its own script.

// Guides and errors come first, then the reference, and the pages for people who work on txn last.
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

// Sphinx finds only pages that have every word. If there are few, pages that lack one of the words
// follow them, and each word less lowers a page.
const FEW = 3;
const LACKING = 200;

// `Search` is of Sphinx's searchtools.js, which runs before this file and searches after it.
if (typeof Search !== "undefined") {
  const withEveryWord = Search.performTermsSearch;
  const search = (words, excluded) => {
    const found = withEveryWord(words, excluded);
    if (found.length >= FEW || words.size < 2) return found;
    const pages = new Map(found.map((each) => [each[0], each]));
    for (const left of words) {
      const fewer = new Set([...words].filter((word) => word !== left));
      for (const each of search(fewer, excluded)) {
        each[4] -= LACKING;
        const before = pages.get(each[0]);
        if (before === undefined || before[4] < each[4]) pages.set(each[0], each);
      }
    }
    return [...pages.values()];
  };
  Search.performTermsSearch = search;
}
