// Format the cells of a table as text, search and sort rows, and write rows as CSV. Knows no elements of the page.
const COLLATOR = new Intl.Collator("en", { numeric: true });
const CHARACTER_WIDTH = 7.7, CELL_PADDING = 12; // pixels, of digits and letters in the font of the table
const UNITS = [["d", 86400], ["h", 3600], ["m", 60], ["s", 1]];

// Return a duration in at most so many units: "3h 04m", "4m 10s", "45s".
function formatDuration(seconds, most) {
  let rest = Math.abs(Math.round(seconds));
  const first = Math.max(0, UNITS.findIndex(([, size]) => rest >= size)), start = rest ? first : UNITS.length - 1;
  const parts = UNITS.slice(start, start + most).map(([unit, size], index) => {
    const count = Math.floor(rest / size);
    rest -= count * size;
    return `${index ? String(count).padStart(2, "0") : count.toLocaleString("en")}${unit}`;
  });
  return `${seconds < 0 ? "−" : ""}${parts.join(" ")}`;
}

// Return the longest form of a duration that fits into a width in pixels, so that none is cut off.
function fitDuration(seconds, width) {
  const two = formatDuration(seconds, 2);
  return two.length * CHARACTER_WIDTH + CELL_PADDING <= width ? two : formatDuration(seconds, 1);
}

const context = document.createElement("canvas").getContext("2d");

// Return a text that fits into a width in pixels: what is left out is at the start of a path, and in the middle of a name.
function fitText(text, width, kind, font) {
  if (width === Infinity || !text) return text;
  context.font = font;
  const room = width - CELL_PADDING - 2, letters = Array.from(text), measure = (shown) => context.measureText(shown).width;
  if (measure(text) <= room) return text;
  let kept = Math.floor((letters.length * room) / measure(text)), shown;
  do {
    const head = kind === "path" ? 0 : Math.ceil(kept / 2);
    shown = `${letters.slice(0, head).join("")}…${letters.slice(letters.length - kept + head).join("")}`;
    kept -= 1;
  } while (kept > 1 && measure(shown) > room);
  return shown;
}

const isMissing = (value) => value === null || value === undefined || value === "";
const unescape = (value) => String(value).replaceAll("\u0001", "<"); // see _serialize in data_table.py

function formatCell(value, kind, width = Infinity, font = "13px sans-serif") {
  if (isMissing(value)) return "";
  if (kind === "time") return value.slice(width < 16 * CHARACTER_WIDTH + CELL_PADDING ? 5 : 0, 16); // without the year
  if (kind === "name" || kind === "path") return fitText(unescape(value), width, kind, font);
  if (kind === "commit") return unescape(value).slice(0, 8);
  return kind === "seconds" ? fitDuration(value, width) : unescape(value);
}

// Return a cell as text that loses nothing, for tooltips and copies.
function fullCell(value, kind) {
  if (isMissing(value)) return "";
  if (kind === "time") return value.slice(0, 19);
  return kind === "seconds" ? formatDuration(value, 4) : unescape(value);
}

// Return whether each word of a search is part of a cell.
function matchesSearch(row, words) {
  if (!words.length) return true;
  const text = row.map((value) => (isMissing(value) ? "" : unescape(value))).join("\n").toLowerCase();
  return words.every((word) => text.includes(word));
}

const searchWords = (search) => search.toLowerCase().split(/\s+/).filter(Boolean);

function sortIndexes(indexes, rows, [column, isDescending], columns) {
  if (column === undefined) return indexes;
  const sign = isDescending ? -1 : 1;
  // Comparing strings takes a tenth of the collator's time.
  const compareTexts = columns[column].kind === "time" ? (a, b) => (a < b ? -1 : a > b) : COLLATOR.compare;
  return indexes.sort((a, b) => {
    const first = rows[a][column], second = rows[b][column];
    if (isMissing(first) || isMissing(second)) return isMissing(first) - isMissing(second) || a - b; // last in both directions
    const areNumbers = typeof first === "number" && typeof second === "number";
    return sign * (areNumbers ? first - second : compareTexts(first, second)) || a - b;
  });
}

// Where a spreadsheet program would start a formula: as in store/files.py, also after what it ignores or takes as the
// end of a cell.
const FORMULA_STARTS = /(?:^|(?<=[;\t\r\n]))(?='*[" \u00a0\u3000\u200b\ufeff]*[=+\-@＝＋－＠])|^(?='*[\t\r\n])/g;

// Return a text that no spreadsheet program runs as a formula, with an apostrophe before each start of one.
const escapeFormulas = (text) => text.replace(FORMULA_STARTS, "'");

// Return values of a row as full texts between tabs, to paste into a spreadsheet or elsewhere.
function formatRow(values, kinds) {
  const cell = (value, kind) => {
    const text = fullCell(value, kind).replaceAll(/[\t\r\n]/g, " ");
    return typeof value === "number" ? text : escapeFormulas(text);
  };
  return values.map((value, position) => cell(value, kinds[position])).join("\t");
}

// Return rows as CSV: durations in seconds, times in full, and an apostrophe before each text such as "=1+1".
function formatCsv(rows, columns) {
  const quote = (text) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  const cell = (value) => (isMissing(value) ? "" : typeof value === "number" ? String(value) : escapeFormulas(unescape(value)));
  const titles = columns.map(({ title, kind }) => (kind === "seconds" ? `${title} (s)` : title));
  const lines = [titles, ...rows.map((row) => columns.map(({ index }) => cell(row[index])))];
  return lines.map((line) => `${line.map(quote).join(",")}\r\n`).join("");
}
