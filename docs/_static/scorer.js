// Order of search results: answers to questions first, the history and the inside of the project last.
const PLACES = [
  [/^how-to\//, 12],
  [/^(tutorials|explanation)\/|^(metrics|plots|fetching|store|report|widgets|acting|webhooks|time|slower|what-if)$/, 6],
  [/^reference\/(command-line|configuration|errors|tables|operations)$/, 4],
  [/^(decisions\/|changelog|contributing|design|performance|reference\/modules|gallery\/)/, -8],
];

var Scorer = {
  score: ([docname, title, anchor, descr, score]) =>
    score + (PLACES.find(([place]) => place.test(docname)) ?? [null, 0])[1],
  objNameMatch: 40,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
