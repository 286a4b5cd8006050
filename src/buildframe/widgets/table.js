// A grid that draws only the rows in sight. Every value goes in by textContent, title or setAttribute: none is HTML.
const HEIGHT = 28, SPARE = 8;
let grids = 0;

function wording(value, kind) {
  if (value === null || value === undefined) return "";
  if (kind !== "seconds") return String(value);
  const s = Math.round(value), pad = (n) => String(n).padStart(2, "0");
  return s >= 3600 ? `${Math.floor(s / 3600)}:${pad(Math.floor(s / 60) % 60)}:${pad(s % 60)}` : `${Math.floor(s / 60)}:${pad(s % 60)}`;
}

function compare(a, b) {
  if (a === b) return 0;
  if (a === null || a === "") return 1; // what is missing comes last, whichever way
  if (b === null || b === "") return -1;
  return typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b));
}

function made(tag, look, role) {
  const element = document.createElement(tag);
  element.className = look;
  if (role) element.setAttribute("role", role);
  return element;
}

function render({ model, el }) {
  const id = `bf-grid-${++grids}`;
  let places = [], active = 0, waiting = null;
  const grid = made("div", "bf-grid", "grid"), head = made("div", "bf-row bf-head", "row");
  const body = made("div", "bf-body", "rowgroup"), foot = made("div", "bf-foot", "status");
  grid.tabIndex = 0;
  grid.dataset.lmSuppressShortcuts = "true"; // else JupyterLab takes the arrows to move between cells
  grid.append(head, body);
  el.append(grid, foot);

  function arrange() {
    const rows = model.get("rows"), [column, descending] = model.get("order"), shown = model.get("shown");
    const held = places[active];
    places = shown === null ? rows.map((_, place) => place) : shown.filter((place) => place < rows.length);
    if (column !== undefined) {
      const sign = descending ? -1 : 1;
      const blank = (place) => rows[place][column] === null || rows[place][column] === "";
      places.sort((a, b) => (blank(a) || blank(b) ? compare(rows[a][column], rows[b][column])
        : sign * compare(rows[a][column], rows[b][column])) || a - b);
    }
    active = Math.max(0, places.indexOf(held));
    foot.textContent = places.length === rows.length ? `${rows.length.toLocaleString("en")} rows`
      : `${places.length.toLocaleString("en")} of ${rows.length.toLocaleString("en")} loaded rows`;
    draw();
  }

  function titles() {
    const [column, descending] = model.get("order");
    const focused = [...head.querySelectorAll("button")].indexOf(document.activeElement);
    head.replaceChildren(...model.get("columns").map(({ title }, place) => {
      const cell = made("div", "bf-cell", "columnheader"), sorter = made("button", "bf-sorter");
      const way = place !== column ? "none" : descending ? "descending" : "ascending";
      cell.setAttribute("aria-sort", way);
      sorter.type = "button";
      sorter.textContent = title + { none: "", ascending: " ▲", descending: " ▼" }[way];
      sorter.title = `Sort by ${title}`;
      sorter.onclick = () => { model.set("order", [place, way === "ascending"]); model.save_changes(); };
      cell.append(sorter);
      return cell;
    }));
    head.querySelectorAll("button")[focused]?.focus();
  }

  function line(at) {
    const place = places[at], chosen = model.get("chosen") === place, columns = model.get("columns");
    const row = made("div", `bf-row${chosen ? " bf-chosen" : ""}${at === active ? " bf-active" : ""}`, "row");
    row.id = `${id}-${place}`;
    row.setAttribute("aria-rowindex", at + 2);
    row.setAttribute("aria-selected", chosen);
    row.style.top = `${at * HEIGHT}px`;
    row.append(...model.get("rows")[place].slice(0, columns.length).map((value, column) => {
      const { kind } = columns[column], cell = made("div", `bf-cell bf-${kind}`, "gridcell");
      cell.textContent = wording(value, kind);
      cell.title = cell.textContent;
      if (kind === "state") cell.dataset.state = cell.textContent;
      return cell;
    }));
    return row;
  }

  function draw() {
    const first = Math.max(0, Math.floor(grid.scrollTop / HEIGHT) - SPARE);
    const last = Math.min(places.length, first + Math.ceil((grid.clientHeight || 320) / HEIGHT) + 2 * SPARE);
    grid.style.setProperty("--bf-columns", model.get("columns").map(({ width }) => width).join(" "));
    body.style.height = `${places.length * HEIGHT}px`;
    body.replaceChildren(...Array.from({ length: Math.max(0, last - first) }, (_, i) => line(first + i)));
    grid.setAttribute("aria-label", model.get("label"));
    grid.setAttribute("aria-rowcount", places.length + 1);
    if (places.length) grid.setAttribute("aria-activedescendant", `${id}-${places[active]}`);
  }

  function choose(soon) { // whoever holds an arrow key wants the row where it ends
    clearTimeout(waiting);
    draw();
    waiting = setTimeout(() => { model.set("chosen", places[active] ?? -1); model.save_changes(); }, soon);
  }

  function move(to) {
    active = Math.min(Math.max(0, to), places.length - 1);
    const top = active * HEIGHT, room = grid.clientHeight - 2 * HEIGHT;
    if (top < grid.scrollTop) grid.scrollTop = top;
    else if (top > grid.scrollTop + room) grid.scrollTop = top - room;
    choose(250);
  }

  body.onclick = (event) => { // by place, not by row: a row may be drawn anew while the button is down
    const at = Math.floor((event.clientY - body.getBoundingClientRect().top) / HEIGHT);
    if (at < places.length) { active = at; choose(0); }
  };
  grid.addEventListener("scroll", () => requestAnimationFrame(draw));
  grid.addEventListener("keydown", (event) => {
    if (event.target !== grid || !places.length) return;
    const page = Math.max(1, Math.floor(grid.clientHeight / HEIGHT) - 2);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (event.key in steps) move(active + steps[event.key]);
    else if (event.key === "Enter" || event.key === " ") choose(0);
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  const reordered = () => { titles(); arrange(); };
  const watched = { "change:rows": arrange, "change:shown": arrange, "change:order": reordered, "change:chosen": draw };
  for (const [name, act] of Object.entries(watched)) model.on(name, act);
  reordered();
  return () => {
    clearTimeout(waiting);
    for (const [name, act] of Object.entries(watched)) model.off(name, act);
  };
}

export default { render };
