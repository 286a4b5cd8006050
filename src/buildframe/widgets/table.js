// A grid that draws only the rows in sight. Every value goes in by textContent, title or setAttribute: none is HTML.
const HEIGHT = 28, SPARE = 8;
const ORDER = new Intl.Collator("en", { numeric: true });
const SIGNS = { none: "", ascending: " ▲", descending: " ▼" };
let grids = 0;

function wording(value, kind) {
  if (value === null || value === undefined) return "";
  if (kind === "time") return value.slice(0, 16);
  if (kind !== "seconds") return String(value).replaceAll("\u0001", "<"); // see _sent in tables.py
  const s = Math.round(value), pad = (n) => String(n).padStart(2, "0");
  return s >= 3600 ? `${Math.floor(s / 3600)}:${pad(Math.floor(s / 60) % 60)}:${pad(s % 60)}` : `${Math.floor(s / 60)}:${pad(s % 60)}`;
}

const blank = (value) => value === null || value === undefined || value === "";

function sorted(places, rows, [column, descending], columns) {
  if (column === undefined) return places;
  const sign = descending ? -1 : 1;
  const texts = columns[column].kind === "time" ? (a, b) => (a < b ? -1 : a > b) : ORDER.compare; // it takes a tenth
  return places.sort((a, b) => {
    const one = rows[a][column], other = rows[b][column];
    if (blank(one) || blank(other)) return blank(one) - blank(other) || a - b; // what is missing comes last, whichever way
    const numbers = typeof one === "number" && typeof other === "number";
    return sign * (numbers ? one - other : texts(one, other)) || a - b;
  });
}

function made(tag, look, role) {
  const element = document.createElement(tag);
  element.className = look;
  if (role) element.setAttribute("role", role);
  return element;
}

function once(act) { // however many changes come together
  let asked = false;
  return () => {
    if (!asked) requestAnimationFrame(() => { asked = false; act(); });
    asked = true;
  };
}

function initialize({ model }) {
  // Rows that were added are asked for, as a message that comes before this listens would be lost.
  const catchUp = () => {
    const have = model.get("rows").length;
    if (have < model.get("count")) model.send({ have });
  };
  model.on("msg:custom", ({ at, more }) => {
    const rows = model.get("rows");
    if (at === rows.length) for (const row of more) rows.push(row);
    catchUp();
  });
  model.on("change:count", catchUp);
  catchUp();
}

function render({ model, el }) {
  const id = `bf-grid-${++grids}`;
  let places = [], active = 0, tabbed = 0, waiting = null;
  const grid = made("div", "bf-grid", "grid"), head = made("div", "bf-row bf-head", "row");
  const body = made("div", "bf-body", "rowgroup"), foot = made("div", "bf-foot", "status");
  grid.tabIndex = 0;
  grid.dataset.lmSuppressShortcuts = "true"; // else JupyterLab takes the arrows to move between cells
  foot.id = `${id}-foot`;
  grid.setAttribute("aria-describedby", foot.id);
  grid.append(head, body);
  el.append(grid, foot);

  function arrange() {
    const rows = model.get("rows"), shown = model.get("shown"), held = places[active];
    places = shown === null ? rows.map((_, place) => place) : shown.filter((place) => place < rows.length);
    sorted(places, rows, model.get("order"), model.get("columns"));
    active = Math.max(0, places.indexOf(held));
    foot.textContent = `${counted(rows)}${ordered()}`;
    grid.classList.toggle("bf-former", model.get("former"));
    grid.style.setProperty("--bf-fit", `${HEIGHT * (1 + Math.max(4, places.length)) + 2}px`);
    draw();
  }

  function counted(rows) {
    const all = rows.length.toLocaleString("en");
    const told = places.length === rows.length ? `${all} rows` : `${places.length.toLocaleString("en")} of ${all} loaded rows`;
    return model.get("former") ? `${told} of before` : told;
  }

  function ordered() {
    const [column, descending] = model.get("order"), { title } = model.get("columns")[column] ?? {};
    return title ? `, sorted by ${title}, ${descending ? "descending" : "ascending"}` : "";
  }

  function titles() {
    const [column, descending] = model.get("order");
    const focused = [...head.querySelectorAll("button")].indexOf(document.activeElement);
    head.replaceChildren(...model.get("columns").map(({ title, kind }, place) => {
      const cell = made("div", `bf-cell bf-${kind}-title`, "columnheader"), sorter = made("button", "bf-sorter");
      const way = place !== column ? "none" : descending ? "descending" : "ascending";
      cell.setAttribute("aria-sort", way);
      sorter.type = "button";
      sorter.tabIndex = place === tabbed ? 0 : -1; // one stop of the Tab key; the arrows lead to the others
      sorter.textContent = title + SIGNS[way];
      sorter.title = `Sort by ${title}`;
      sorter.onclick = () => { tabbed = place; model.set("order", [place, way === "ascending"]); model.save_changes(); };
      cell.append(sorter);
      return cell;
    }));
    head.querySelectorAll("button")[focused]?.focus();
  }

  function reorder() {
    titles();
    grid.scrollTop = 0;
    arrange();
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
      cell.title = kind === "time" && value ? value.slice(0, 19) : cell.textContent;
      if (kind === "state") cell.dataset.state = cell.textContent;
      if (kind === "share") cell.style.setProperty("--bf-share", `${parseFloat(value) || 0}%`);
      return cell;
    }));
    return row;
  }

  function draw() {
    const columns = model.get("columns"), least = columns.reduce((sum, { width }) => sum + parseInt(/\d+(?=px)/.exec(width) ?? 60), 0);
    body.style.height = `${places.length * HEIGHT}px`; // first, as where the grid is scrolled to may change with it
    const first = Math.max(0, Math.floor(grid.scrollTop / HEIGHT) - SPARE);
    const last = Math.min(places.length, first + Math.ceil((grid.clientHeight || 320) / HEIGHT) + 2 * SPARE);
    grid.style.setProperty("--bf-columns", columns.map(({ width }) => width).join(" "));
    grid.style.setProperty("--bf-least", `${least}px`);
    body.replaceChildren(...Array.from({ length: Math.max(0, last - first) }, (_, i) => line(first + i)));
    grid.setAttribute("aria-label", model.get("label"));
    grid.setAttribute("aria-rowcount", places.length + 1);
    if (first <= active && active < last) grid.setAttribute("aria-activedescendant", `${id}-${places[active]}`);
    else grid.removeAttribute("aria-activedescendant");
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

  function walkTitles(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key], sorters = head.querySelectorAll("button");
    if (!step || !sorters[tabbed + step]) return;
    sorters[tabbed].tabIndex = -1;
    tabbed += step;
    sorters[tabbed].tabIndex = 0;
    sorters[tabbed].focus();
    event.preventDefault();
  }

  body.onclick = (event) => { // by place, not by row: a row may be drawn anew while the button is down
    const at = Math.floor((event.clientY - body.getBoundingClientRect().top) / HEIGHT);
    if (at < places.length) { active = at; choose(0); }
  };
  head.addEventListener("keydown", walkTitles);
  grid.addEventListener("scroll", once(draw));
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
  const answer = () => {
    if (model.get("answered") === model.get("calls")) return;
    model.set("answered", model.get("calls"));
    model.save_changes();
  };
  const [rearranged, reordered, redrawn] = [arrange, reorder, draw].map(once);
  const watched = [
    ["change:rows change:shown change:former change:count msg:custom", rearranged],
    ["change:order change:columns", reordered],
    ["change:chosen change:label", redrawn],
    ["change:calls", answer],
  ].flatMap(([names, act]) => names.split(" ").map((name) => [name, act]));
  for (const [name, act] of watched) model.on(name, act);
  const sized = new ResizeObserver(redrawn);
  sized.observe(grid);
  reorder();
  answer();
  return () => {
    clearTimeout(waiting);
    sized.disconnect();
    for (const [name, act] of watched) model.off(name, act);
  };
}

export default { initialize, render };
