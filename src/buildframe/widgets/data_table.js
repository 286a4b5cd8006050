// A grid that draws only visible rows. Values are set by textContent, title or setAttribute: none is parsed as HTML.
const ROW_HEIGHT = 28, EXTRA_ROWS = 8;
const COPIED_LENGTH = 60; // characters of a copied text that the status repeats

function oncePerFrame(callback) {
  let isScheduled = false;
  return () => {
    if (!isScheduled) requestAnimationFrame(() => { isScheduled = false; callback(); });
    isScheduled = true;
  };
}

function initialize({ model }) {
  // The page requests added rows, because a message that arrives before this listener would be lost.
  const requestRows = () => {
    const loaded = model.get("rows").length;
    if (loaded < model.get("row_count")) model.send({ loaded });
  };
  model.on("msg:custom", ({ offset, rows: added }) => {
    const rows = model.get("rows");
    if (offset === rows.length) for (const row of added) rows.push(row);
    requestRows();
  });
  model.on("change:row_count", requestRows);
  requestRows();
}

async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch { // pages without https have no clipboard
    const onCopy = (event) => { event.clipboardData.setData("text/plain", text); event.preventDefault(); };
    document.addEventListener("copy", onCopy, { once: true, capture: true });
    document.execCommand("copy");
    document.removeEventListener("copy", onCopy, { capture: true });
  }
}

function download(name, text) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob(["\ufeff", text], { type: "text/csv" })); // the mark makes Excel read UTF-8
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

function render({ model, el }) {
  const id = `bf-grid-${Math.random().toString(36).slice(2)}`; // each table has a copy of this module, so they cannot count
  let order = [], columns = []; // indexes of rows, and columns, as displayed
  let focused = 0, focusedCell = -1, selectTimer = null, copied = "", dragged = null, scrollTop = 0, lastMarked = null; // focusedCell: -1 is the whole row
  const grid = createElement("div", "bf-grid", "grid"), body = createElement("div", "bf-body", "rowgroup");
  const { head, draw: drawHead } = createHead(model, grid, widestCell, markAll);
  const foot = createElement("div", "bf-foot"), status = createElement("span", "bf-foot-status", "status");
  const { panel, draw: drawPanel } = createColumnPanel(model, `${id}-columns`, () => { togglePanel(false); columnsButton.focus(); });
  const columnsButton = createButton("bf-button", "Columns", "", () => togglePanel(panel.hidden));
  const copyButton = createButton("bf-button", "Copy row", "", () => copy(rowText()));
  const csvButton = createButton("bf-button", "CSV", "Download the rows as CSV", saveCsv);
  const search = createElement("input", "bf-search");

  grid.tabIndex = 0;
  grid.dataset.lmSuppressShortcuts = "true"; // otherwise JupyterLab uses the arrows to move between cells
  status.id = `${id}-foot`;
  grid.setAttribute("aria-describedby", status.id);
  copyButton.title = "Ctrl+C copies the focused cell, or the row";
  columnsButton.setAttribute("aria-controls", panel.id);
  search.type = "search";
  search.dataset.lmSuppressShortcuts = "true";
  search.placeholder = "Search the loaded rows";
  search.value = model.get("search");
  search.oninput = () => save(model, { search: search.value });
  grid.append(head, body);
  const buttons = createElement("span", "bf-foot-buttons");
  buttons.append(columnsButton, copyButton, csvButton);
  foot.append(status, buttons);
  if (model.get("has_search")) el.append(search);
  el.append(grid, foot, panel);
  togglePanel(false);

  function togglePanel(isOpen) {
    panel.hidden = !isOpen;
    columnsButton.setAttribute("aria-expanded", isOpen);
  }

  function updateRows() {
    const rows = model.get("rows"), visible = model.get("visible_rows"), focusedRow = order[focused];
    const words = searchWords(model.get("search"));
    order = visible === null ? rows.map((_, index) => index) : visible.filter((index) => index < rows.length);
    if (words.length) order = order.filter((index) => matchesSearch(rows[index], words));
    sortIndexes(order, rows, model.get("sort_order"), model.get("columns"));
    focused = Math.max(0, order.indexOf(focusedRow));
    copied = "";
    grid.classList.toggle("bf-stale", model.get("is_stale"));
    grid.style.setProperty("--bf-fit", `${ROW_HEIGHT * (1 + Math.max(4, order.length)) + 2}px`);
    if (search.value !== model.get("search")) search.value = model.get("search");
    draw();
  }

  function countText(rows) {
    const all = `${rows.length.toLocaleString("en")} row${rows.length === 1 ? "" : "s"}`;
    const text = order.length === rows.length ? all : `${order.length.toLocaleString("en")} of ${rows.length.toLocaleString("en")} loaded rows`;
    return model.get("is_stale") ? `${text} (previous results)` : text;
  }

  function sortText() {
    const [column, isDescending] = model.get("sort_order"), { title } = model.get("columns")[column] ?? {};
    return title ? `, sorted by ${title}, ${isDescending ? "descending" : "ascending"}` : "";
  }

  function hiddenText() {
    const count = model.get("columns").filter(({ optional }) => !optional).length - columns.filter(({ optional, title }) => title && !optional).length;
    return count > 0 ? `, ${count} column${count === 1 ? "" : "s"} hidden` : "";
  }

  function drawStatus() {
    const marks = model.get("has_marks") ? `, ${model.get("marked").length.toLocaleString("en")} marked` : "";
    const text = copied ? `Copied: ${copied}` : `${countText(model.get("rows"))}${marks}${sortText()}${hiddenText()}`;
    if (status.textContent !== text) status.textContent = text; // otherwise screen readers repeat it
    copyButton.disabled = csvButton.disabled = !order.length;
  }

  function updateOrder() {
    grid.scrollTop = scrollTop = 0;
    updateRows();
  }

  function createRow(position) {
    const index = order[position], isSelected = model.get("selected") === index, row = createElement("div", "bf-row", "row");
    row.classList.toggle("bf-selected", isSelected);
    row.classList.toggle("bf-focused", position === focused);
    row.id = `${id}-${index}`;
    row.setAttribute("aria-rowindex", position + 2);
    row.setAttribute("aria-selected", model.get("has_marks") ? model.get("marked").includes(index) : isSelected);
    row.style.top = `${position * ROW_HEIGHT}px`;
    row.append(...columns.map((column, place) => createCell(valueOf(index, column), column, place, row.id)));
    if (position === focused && focusedCell >= 0) row.children[focusedCell]?.classList.add("bf-focused-cell");
    return row;
  }

  function valueOf(index, column) {
    return column.kind === "mark" ? (model.get("marked").includes(index) ? "☑" : "☐") : model.get("rows")[index][column.index];
  }

  function createCell(value, { kind }, place, rowId) {
    const cell = createElement("div", `bf-cell bf-${kind}`, "gridcell");
    cell.id = `${rowId}-${place}`;
    cell.setAttribute("aria-colindex", place + 1);
    cell.textContent = formatCell(value, kind, head.children[place]?.offsetWidth || Infinity, getComputedStyle(grid).font);
    cell.title = fullCell(value, kind);
    if (kind === "state") cell.dataset.state = cell.textContent;
    if (kind === "percent") cell.style.setProperty("--bf-percent", `${parseFloat(value) || 0}%`);
    return cell;
  }

  function drawColumns() {
    columns = shownColumns(model, grid.clientWidth);
    const minWidth = columns.reduce((sum, column) => sum + column.minWidth, 0), widths = columns.map(({ width }) => width);
    if (dragged) widths[columns.findIndex(({ title }) => title === dragged[0])] = `${Math.max(MIN_WIDTH, dragged[1])}px`;
    grid.style.setProperty("--bf-columns", widths.join(" "));
    grid.style.setProperty("--bf-min-width", `${minWidth}px`);
    grid.setAttribute("aria-colcount", columns.length);
    grid.setAttribute("aria-multiselectable", model.get("has_marks"));
    if (!dragged) { // the handle that is dragged must stay
      drawHead(columns);
      drawPanel(columns);
    }
    focusedCell = Math.min(focusedCell, columns.length - 1);
  }

  function draw() {
    drawColumns();
    drawBody();
    drawStatus();
  }

  function drawBody() {
    body.style.height = `${order.length * ROW_HEIGHT}px`; // first, because it may change the scroll position
    const first = Math.max(0, Math.floor(grid.scrollTop / ROW_HEIGHT) - EXTRA_ROWS);
    const last = Math.min(order.length, first + Math.ceil((grid.clientHeight || 320) / ROW_HEIGHT) + 2 * EXTRA_ROWS);
    body.replaceChildren(...Array.from({ length: Math.max(0, last - first) }, (_, i) => createRow(first + i)));
    grid.setAttribute("aria-label", model.get("label"));
    search.setAttribute("aria-label", `Search the loaded rows of ${model.get("label")}`);
    grid.setAttribute("aria-rowcount", order.length + 1);
    const active = `${id}-${order[focused]}${focusedCell >= 0 ? `-${focusedCell}` : ""}`;
    if (first <= focused && focused < last) grid.setAttribute("aria-activedescendant", active);
    else grid.removeAttribute("aria-activedescendant");
  }

  function widestCell(place) {
    const cells = [head, ...body.children].map((row) => row.children[place]);
    return Math.max(...cells.map((cell) => {
      if (cell.title && cell.textContent.includes("…")) cell.textContent = cell.title;
      const range = document.createRange();
      range.selectNodeContents(cell);
      return range.getBoundingClientRect().width;
    })) + CELL_PADDING + 8;
  }

  function rowText() {
    const row = model.get("rows")[order[focused]];
    const titled = columns.filter(({ title }) => title);
    return formatRow(titled.map(({ index }) => row[index]), titled.map(({ kind }) => kind));
  }

  function cellText() {
    return fullCell(valueOf(order[focused], columns[focusedCell]), columns[focusedCell].kind);
  }

  function copy(text) {
    copyText(text).then(() => {
      copied = text.length > COPIED_LENGTH ? `${text.slice(0, COPIED_LENGTH)}…` : text;
      drawStatus();
    });
  }

  function saveCsv() {
    const name = model.get("label").replaceAll(/[^\w#.-]+/g, "-").toLowerCase();
    download(`${name || "table"}.csv`, formatCsv(order.map((index) => model.get("rows")[index]), columns.filter(({ title }) => title)));
  }

  // Mark a row or remove its mark; with `isRange`, all rows from the one that was marked last.
  function toggleMark(position, isRange) {
    const marked = new Set(model.get("marked")), isMarking = !marked.has(order[position]);
    const from = isRange && lastMarked !== null ? Math.min(lastMarked, order.length - 1) : position;
    for (let i = Math.min(from, position); i <= Math.max(from, position); i++) marked[isMarking ? "add" : "delete"](order[i]);
    lastMarked = position;
    save(model, { marked: [...marked] });
  }

  function markAll() {
    const marked = new Set(model.get("marked"));
    save(model, { marked: order.every((index) => marked.has(index)) ? [] : [...order] });
  }

  function select(delay) { // while an arrow key is held down, only the last row counts
    clearTimeout(selectTimer);
    copied = "";
    drawBody();
    drawStatus();
    selectTimer = setTimeout(() => { model.set("selected", order[focused] ?? -1); model.save_changes(); }, delay);
  }

  function moveTo(position) {
    focused = Math.min(Math.max(0, position), order.length - 1);
    const top = focused * ROW_HEIGHT, height = grid.clientHeight - 2 * ROW_HEIGHT;
    if (top < grid.scrollTop) grid.scrollTop = top;
    else if (top > grid.scrollTop + height) grid.scrollTop = top - height;
    select(250);
  }

  function moveToCell(place) {
    focusedCell = Math.min(Math.max(-1, place), columns.length - 1);
    drawBody();
    if (focusedCell >= 0) body.querySelector(".bf-focused-cell")?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }

  body.onclick = (event) => { // by position, because a row may be redrawn while the mouse button is down
    const position = Math.floor((event.clientY - body.getBoundingClientRect().top) / ROW_HEIGHT);
    if (position >= order.length) return;
    focused = position;
    focusedCell = [...head.children].findIndex((cell) => event.clientX < cell.getBoundingClientRect().right);
    if (columns[focusedCell]?.kind === "mark") toggleMark(position, event.shiftKey);
    else select(0);
  };
  grid.addEventListener("scroll", oncePerFrame(() => { scrollTop = grid.scrollTop; drawBody(); }));
  // JupyterLab takes outputs out of the page and puts them back, also when the theme changes. That scrolls the grid to
  // its beginning without an event. An animation starts then.
  grid.addEventListener("animationstart", ({ animationName }) => {
    if (animationName !== "bf-attached") return;
    grid.scrollTop = scrollTop;
    draw();
  });
  grid.addEventListener("bf-width", (event) => { dragged = event.detail; drawColumns(); drawBody(); dragged = null; });
  grid.addEventListener("keydown", (event) => {
    if (event.target !== grid || !order.length) return;
    const page = Math.max(1, Math.floor(grid.clientHeight / ROW_HEIGHT) - 2);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    const isCommand = event.ctrlKey || event.metaKey;
    if (isCommand && event.key.toLowerCase() === "a" && model.get("has_marks")) markAll();
    else if (event.key === " " && model.get("has_marks")) toggleMark(focused, event.shiftKey);
    else if (isCommand && event.key.toLowerCase() === "c") {
      if (String(getSelection()) && grid.contains(getSelection().anchorNode)) return; // the browser copies marked text
      copy(focusedCell >= 0 ? cellText() : rowText());
    } else if (event.key in steps) moveTo(focused + steps[event.key]);
    else if (event.key === "ArrowRight") moveToCell(focusedCell + 1);
    else if (event.key === "ArrowLeft") moveToCell(focusedCell - 1);
    else if (event.key === "Enter" || event.key === " ") select(0);
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  const sendPong = () => {
    if (model.get("pong") === model.get("ping")) return;
    model.set("pong", model.get("ping"));
    model.save_changes();
  };
  const [onRows, onOrder, onDraw] = [updateRows, updateOrder, draw].map(oncePerFrame);
  const listeners = [
    ["change:rows change:visible_rows change:is_stale change:row_count change:search msg:custom", onRows],
    ["change:sort_order change:columns", onOrder],
    ["change:selected change:label change:marked change:has_marks", onDraw],
    ["change:column_order change:column_widths change:column_choices", onDraw],
    ["change:ping", sendPong],
  ].flatMap(([names, callback]) => names.split(" ").map((name) => [name, callback]));
  for (const [name, callback] of listeners) model.on(name, callback);
  const resizeObserver = new ResizeObserver(onDraw);
  resizeObserver.observe(grid);
  updateOrder();
  sendPong();
  return () => {
    clearTimeout(selectTimer);
    resizeObserver.disconnect();
    for (const [name, callback] of listeners) model.off(name, callback);
  };
}

export default { initialize, render };
