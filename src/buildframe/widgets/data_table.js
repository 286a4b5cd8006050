// A grid that draws only visible rows. Values are set by textContent, title or setAttribute: none is parsed as HTML.
const ROW_HEIGHT = 28, EXTRA_ROWS = 8;
const COLLATOR = new Intl.Collator("en", { numeric: true });
const SORT_SIGNS = { none: "", ascending: " ▲", descending: " ▼" };
let gridCount = 0;

function formatCell(value, kind) {
  if (value === null || value === undefined) return "";
  if (kind === "time") return value.slice(0, 16);
  if (kind !== "seconds") return String(value).replaceAll("\u0001", "<"); // see _serialize in data_table.py
  const s = Math.round(value), pad = (n) => String(n).padStart(2, "0");
  return s >= 3600 ? `${Math.floor(s / 3600)}:${pad(Math.floor(s / 60) % 60)}:${pad(s % 60)}` : `${Math.floor(s / 60)}:${pad(s % 60)}`;
}

const isMissing = (value) => value === null || value === undefined || value === "";

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

function createElement(tag, className, role) {
  const element = document.createElement(tag);
  element.className = className;
  if (role) element.setAttribute("role", role);
  return element;
}

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

function render({ model, el }) {
  const id = `bf-grid-${++gridCount}`;
  let order = [], focused = 0, focusedTitle = 0, selectTimer = null; // order: indexes of rows as displayed
  const grid = createElement("div", "bf-grid", "grid"), head = createElement("div", "bf-row bf-head", "row");
  const body = createElement("div", "bf-body", "rowgroup"), foot = createElement("div", "bf-foot", "status");
  grid.tabIndex = 0;
  grid.dataset.lmSuppressShortcuts = "true"; // otherwise JupyterLab uses the arrows to move between cells
  foot.id = `${id}-foot`;
  grid.setAttribute("aria-describedby", foot.id);
  grid.append(head, body);
  el.append(grid, foot);

  function updateRows() {
    const rows = model.get("rows"), visible = model.get("visible_rows"), focusedRow = order[focused];
    order = visible === null ? rows.map((_, index) => index) : visible.filter((index) => index < rows.length);
    sortIndexes(order, rows, model.get("sort_order"), model.get("columns"));
    focused = Math.max(0, order.indexOf(focusedRow));
    foot.textContent = `${countText(rows)}${sortText()}`;
    grid.classList.toggle("bf-stale", model.get("is_stale"));
    grid.style.setProperty("--bf-fit", `${ROW_HEIGHT * (1 + Math.max(4, order.length)) + 2}px`);
    draw();
  }

  function countText(rows) {
    const all = rows.length.toLocaleString("en");
    const text = order.length === rows.length ? `${all} rows` : `${order.length.toLocaleString("en")} of ${all} loaded rows`;
    return model.get("is_stale") ? `${text} (previous results)` : text;
  }

  function sortText() {
    const [column, isDescending] = model.get("sort_order"), { title } = model.get("columns")[column] ?? {};
    return title ? `, sorted by ${title}, ${isDescending ? "descending" : "ascending"}` : "";
  }

  function drawHead() {
    const [column, isDescending] = model.get("sort_order");
    const focusedButton = [...head.querySelectorAll("button")].indexOf(document.activeElement);
    head.replaceChildren(...model.get("columns").map(({ title, kind }, index) => {
      const cell = createElement("div", `bf-cell bf-${kind}-title`, "columnheader"), button = createElement("button", "bf-sort-button");
      const direction = index !== column ? "none" : isDescending ? "descending" : "ascending";
      cell.setAttribute("aria-sort", direction);
      button.type = "button";
      button.tabIndex = index === focusedTitle ? 0 : -1; // one stop of the Tab key; arrows lead to the others
      button.textContent = title + SORT_SIGNS[direction];
      button.title = `Sort by ${title}`;
      button.onclick = () => { focusedTitle = index; model.set("sort_order", [index, direction === "ascending"]); model.save_changes(); };
      cell.append(button);
      return cell;
    }));
    head.querySelectorAll("button")[focusedButton]?.focus();
  }

  function updateOrder() {
    drawHead();
    grid.scrollTop = 0;
    updateRows();
  }

  function createRow(position) {
    const index = order[position], isSelected = model.get("selected") === index, columns = model.get("columns");
    const row = createElement("div", `bf-row${isSelected ? " bf-selected" : ""}${position === focused ? " bf-focused" : ""}`, "row");
    row.id = `${id}-${index}`;
    row.setAttribute("aria-rowindex", position + 2);
    row.setAttribute("aria-selected", isSelected);
    row.style.top = `${position * ROW_HEIGHT}px`;
    row.append(...model.get("rows")[index].slice(0, columns.length).map((value, column) => {
      const { kind } = columns[column], cell = createElement("div", `bf-cell bf-${kind}`, "gridcell");
      cell.textContent = formatCell(value, kind);
      cell.title = kind === "time" && value ? value.slice(0, 19) : cell.textContent;
      if (kind === "state") cell.dataset.state = cell.textContent;
      if (kind === "percent") cell.style.setProperty("--bf-percent", `${parseFloat(value) || 0}%`);
      return cell;
    }));
    return row;
  }

  function draw() {
    const columns = model.get("columns"), minWidth = columns.reduce((sum, { width }) => sum + parseInt(/\d+(?=px)/.exec(width) ?? 60), 0);
    body.style.height = `${order.length * ROW_HEIGHT}px`; // first, because it may change the scroll position
    const first = Math.max(0, Math.floor(grid.scrollTop / ROW_HEIGHT) - EXTRA_ROWS);
    const last = Math.min(order.length, first + Math.ceil((grid.clientHeight || 320) / ROW_HEIGHT) + 2 * EXTRA_ROWS);
    grid.style.setProperty("--bf-columns", columns.map(({ width }) => width).join(" "));
    grid.style.setProperty("--bf-min-width", `${minWidth}px`);
    body.replaceChildren(...Array.from({ length: Math.max(0, last - first) }, (_, i) => createRow(first + i)));
    grid.setAttribute("aria-label", model.get("label"));
    grid.setAttribute("aria-rowcount", order.length + 1);
    if (first <= focused && focused < last) grid.setAttribute("aria-activedescendant", `${id}-${order[focused]}`);
    else grid.removeAttribute("aria-activedescendant");
  }

  function select(delay) { // while an arrow key is held down, only the last row counts
    clearTimeout(selectTimer);
    draw();
    selectTimer = setTimeout(() => { model.set("selected", order[focused] ?? -1); model.save_changes(); }, delay);
  }

  function moveTo(position) {
    focused = Math.min(Math.max(0, position), order.length - 1);
    const top = focused * ROW_HEIGHT, height = grid.clientHeight - 2 * ROW_HEIGHT;
    if (top < grid.scrollTop) grid.scrollTop = top;
    else if (top > grid.scrollTop + height) grid.scrollTop = top - height;
    select(250);
  }

  function onHeadKeydown(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key], buttons = head.querySelectorAll("button");
    if (!step || !buttons[focusedTitle + step]) return;
    buttons[focusedTitle].tabIndex = -1;
    focusedTitle += step;
    buttons[focusedTitle].tabIndex = 0;
    buttons[focusedTitle].focus();
    event.preventDefault();
  }

  body.onclick = (event) => { // by position, because a row may be redrawn while the mouse button is down
    const position = Math.floor((event.clientY - body.getBoundingClientRect().top) / ROW_HEIGHT);
    if (position < order.length) { focused = position; select(0); }
  };
  head.addEventListener("keydown", onHeadKeydown);
  grid.addEventListener("scroll", oncePerFrame(draw));
  grid.addEventListener("keydown", (event) => {
    if (event.target !== grid || !order.length) return;
    const page = Math.max(1, Math.floor(grid.clientHeight / ROW_HEIGHT) - 2);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (event.key in steps) moveTo(focused + steps[event.key]);
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
    ["change:rows change:visible_rows change:is_stale change:row_count msg:custom", onRows],
    ["change:sort_order change:columns", onOrder],
    ["change:selected change:label", onDraw],
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
