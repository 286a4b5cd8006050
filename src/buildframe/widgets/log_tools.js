// Search the log in the same box, jump to lines that report errors, and fold its groups. Changes no text of the log.
const MAX_MATCHES = 5000;
// One registry for all logs of the page. Browsers without it still jump from match to match.
const highlights = ["bf-match", "bf-current-match"].map((name) => {
  if (!globalThis.CSS?.highlights) return new Set();
  if (!CSS.highlights.has(name)) CSS.highlights.set(name, new Highlight());
  return CSS.highlights.get(name);
});

function createButton(text, label, onClick) {
  const button = document.createElement("button");
  Object.assign(button, { type: "button", className: "bf-button", textContent: text, onclick: onClick });
  if (label) button.setAttribute("aria-label", label);
  return button;
}

// Return the places of a text within an element as ranges.
function findRanges(element, text) {
  const nodes = [], ranges = [], walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
  let all = "";
  while (walker.nextNode()) {
    nodes.push([all.length, walker.currentNode]);
    all += walker.currentNode.data;
  }
  const lower = all.toLowerCase();
  if (lower.length !== all.length) return ranges; // letters whose case changes their length would shift the places
  const locate = (at, isEnd) => nodes.findLast(([start]) => (isEnd ? start < at : start <= at));
  for (let at = lower.indexOf(text); at >= 0; at = lower.indexOf(text, at + text.length)) {
    const range = document.createRange(), [first, from] = locate(at), [last, to] = locate(at + text.length, true);
    range.setStart(from, at - first);
    range.setEnd(to, at + text.length - last);
    ranges.push(range);
  }
  return ranges;
}

function render({ model, el }) {
  const box = () => el.closest(".bf-log-view"), log = () => box()?.querySelector(".bf-log") ?? null;
  const tools = document.createElement("div"), search = document.createElement("input"), status = document.createElement("span");
  let ranges = [], match = -1, error = -1, shown = null;

  tools.className = "bf-log-tools";
  Object.assign(search, { type: "search", className: "bf-search", placeholder: "Search this log" });
  search.dataset.lmSuppressShortcuts = "true";
  search.setAttribute("aria-label", "Search this log");
  status.setAttribute("role", "status");
  status.className = "bf-log-tools-status";
  const errorButtons = [createButton("Error ↑", "Previous error line", () => jumpToError(-1)), createButton("Error ↓", "Next error line", () => jumpToError(1))];
  const matchButtons = [createButton("↑", "Previous match", () => jumpToMatch(-1)), createButton("↓", "Next match", () => jumpToMatch(1))];
  const foldButton = createButton("", "", fold);
  tools.append(search, ...matchButtons, ...errorButtons, foldButton, status);
  el.append(tools);

  const groups = () => [...(log()?.querySelectorAll("details") ?? [])];
  const errorLines = () => [...(log()?.querySelectorAll(".bf-log-error") ?? [])];

  function update() { // the log may be another one, or none
    const current = log();
    if (current === shown) return;
    shown = current;
    tools.hidden = !current;
    error = -1;
    for (const button of errorButtons) button.hidden = !errorLines().length;
    foldButton.hidden = !groups().length;
    current?.addEventListener("toggle", drawFold, true);
    drawFold();
    find();
    const count = errorLines().length;
    if (count) status.textContent = `${count} error line${count === 1 ? "" : "s"}`;
  }

  function clear() {
    for (const range of ranges) for (const each of highlights) each.delete(range);
    ranges = [];
    match = -1;
  }

  function find() {
    clear();
    const text = search.value.toLowerCase();
    if (text && shown) {
      for (const line of shown.querySelectorAll(".bf-log-line")) {
        if (ranges.length < MAX_MATCHES) ranges.push(...findRanges(line, text));
      }
    }
    for (const range of ranges) highlights[0].add(range);
    for (const button of matchButtons) button.disabled = !ranges.length;
    status.textContent = !text ? "" : `${ranges.length.toLocaleString("en")}${ranges.length < MAX_MATCHES ? "" : "+"} match${ranges.length === 1 ? "" : "es"}`;
  }

  function reveal(target, element) {
    for (let parent = element.closest("details"); parent; parent = parent.parentElement.closest("details")) parent.open = true;
    const frame = shown.getBoundingClientRect(), place = target.getBoundingClientRect();
    shown.scrollBy(0, place.top - frame.top - frame.height / 2);
  }

  function jumpToMatch(step) {
    if (!ranges.length) return;
    if (ranges[match]) highlights[1].delete(ranges[match]);
    match = match < 0 && step < 0 ? ranges.length - 1 : (match + step + ranges.length) % ranges.length;
    highlights[1].add(ranges[match]);
    highlights[1].priority = 1;
    reveal(ranges[match], ranges[match].startContainer.parentElement);
    status.textContent = `Match ${match + 1} of ${ranges.length.toLocaleString("en")}`;
  }

  function jumpToError(step) {
    const lines = errorLines();
    lines[error]?.classList.remove("bf-current-error");
    error = error < 0 && step < 0 ? lines.length - 1 : (error + step + lines.length) % lines.length;
    lines[error].classList.add("bf-current-error");
    reveal(lines[error], lines[error]);
    status.textContent = `Error line ${error + 1} of ${lines.length}: ${lines[error].textContent.trim().slice(0, 120)}`;
  }

  function fold() {
    const isOpening = groups().some((group) => !group.open);
    for (const group of groups()) group.open = isOpening;
  }

  function drawFold() {
    foldButton.textContent = groups().some((group) => !group.open) ? "Unfold all" : "Fold all";
  }

  search.oninput = find;
  search.onkeydown = (event) => {
    if (event.key === "Enter") jumpToMatch(event.shiftKey ? -1 : 1);
  };
  tools.hidden = true;
  const observer = new MutationObserver(update);
  const observe = (tries) => {
    if (box()) { update(); observer.observe(box(), { childList: true, subtree: true }); }
    else if (tries) requestAnimationFrame(() => observe(tries - 1));
  };
  observe(600);
  return () => { observer.disconnect(); clear(); };
}

export default { render };
