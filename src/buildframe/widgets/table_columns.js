// Decide which columns a table shows, in which order and how wide; draw its head, and the panel that changes these.
const MIN_WIDTH = 40, RESIZE_STEP = 16, DRAG_DISTANCE = 6; // pixels
const MARK = { title: "", kind: "mark", index: -1, width: "34px", minWidth: 34, rank: 0 }; // the column of marks
const SORT_SIGNS = { none: "", ascending: " ▲", descending: " ▼" };

function createElement(tag, className, role) {
  const element = document.createElement(tag);
  element.className = className;
  if (role) element.setAttribute("role", role);
  return element;
}

function createButton(className, text, label, onClick) {
  const button = createElement("button", className);
  button.type = "button";
  button.textContent = text;
  if (label) button.setAttribute("aria-label", label);
  button.onclick = onClick;
  return button;
}

function save(model, values) {
  for (const [name, value] of Object.entries(values)) model.set(name, value);
  model.save_changes();
}

// Return all columns in the user's order, each with its index in a row, its CSS width and its least width.
function orderedColumns(model) {
  const order = model.get("column_order"), widths = model.get("column_widths");
  const columns = model.get("columns").map((column, index) => {
    const chosen = widths[column.title], width = chosen ? `${chosen}px` : column.width;
    return { ...column, index, width, minWidth: chosen ?? parseInt(/\d+(?=px)/.exec(column.width) ?? 60) };
  });
  if (!order.length) return columns;
  const place = ({ title, index }) => (order.includes(title) ? order.indexOf(title) : index + 0.5);
  return columns.sort((a, b) => place(a) - place(b));
}

// Return the columns to show. If the table is too narrow, the last ones to matter are left out, unless the user chose them.
function shownColumns(model, width) {
  const choices = model.get("column_choices"), marks = model.get("has_marks") ? [MARK] : [];
  const shown = orderedColumns(model).filter(({ title, optional }) => choices[title] ?? !optional);
  const total = () => shown.reduce((sum, column) => sum + column.minWidth, marks.length * MARK.minWidth);
  while (width && total() > width) {
    const rank = Math.max(...shown.map((column) => (choices[column.title] ? 0 : column.rank)));
    if (!rank) break;
    shown.splice(shown.findLastIndex((column) => column.rank === rank && !choices[column.title]), 1);
  }
  return [...marks, ...shown];
}

function setWidth(model, title, width) {
  save(model, { column_widths: { ...model.get("column_widths"), [title]: Math.max(MIN_WIDTH, Math.round(width)) } });
}

// Move a column to the place of another one, or by one place.
function moveColumn(model, title, target) {
  const order = orderedColumns(model).map((column) => column.title), from = order.indexOf(title);
  const to = typeof target === "number" ? from + target : order.indexOf(target);
  if (to < 0 || to >= order.length || to === from) return;
  order.splice(to, 0, ...order.splice(from, 1));
  save(model, { column_order: order });
}

function createHead(model, grid, widestCell, markAll) {
  const head = createElement("div", "bf-row bf-head", "row");
  let shown = [], focused = 0, wasDragged = false;

  function draw(columns) {
    const active = [...head.querySelectorAll("button")].indexOf(document.activeElement);
    shown = columns;
    focused = Math.min(focused, columns.length - 1);
    head.replaceChildren(...columns.map((column, place) => (column.kind === "mark" ? createMarkTitle(place) : createTitle(column, place))));
    if (active >= 0) head.querySelectorAll("button")[Math.min(active, columns.length - 1)]?.focus();
  }

  function createMarkTitle(place) {
    const cell = createElement("div", "bf-cell bf-mark", "columnheader");
    const button = createButton("bf-sort-button", "☑", "Mark all rows, or none", () => { focused = place; markAll(); });
    cell.setAttribute("aria-colindex", place + 1);
    button.tabIndex = place === focused ? 0 : -1;
    button.title = "Mark all rows, or none (Ctrl+A)";
    cell.append(button);
    return cell;
  }

  function createTitle({ title, kind, index }, place) {
    const [column, isDescending] = model.get("sort_order");
    const direction = index !== column ? "none" : isDescending ? "descending" : "ascending";
    const cell = createElement("div", `bf-cell bf-${kind}-title`, "columnheader"), handle = createElement("span", "bf-resize");
    const button = createButton("bf-sort-button", title + SORT_SIGNS[direction], "", () => {
      if (wasDragged) return;
      focused = place;
      save(model, { sort_order: [index, direction === "ascending"] });
    });
    cell.setAttribute("aria-sort", direction);
    cell.setAttribute("aria-colindex", place + 1);
    button.tabIndex = place === focused ? 0 : -1; // one stop of the Tab key; arrows lead to the others
    button.title = `${title}: click to sort, drag to move, Shift and arrow keys to resize`;
    button.onpointerdown = (event) => dragTitle(event, button, title);
    handle.onpointerdown = (event) => dragEdge(event, handle, title, cell.offsetWidth);
    handle.ondblclick = () => setWidth(model, title, widestCell(place));
    cell.append(button, handle);
    return cell;
  }

  function dragEdge(event, handle, title, width) {
    event.preventDefault();
    event.stopPropagation();
    const onMove = (move) => grid.dispatchEvent(new CustomEvent("bf-width", { detail: [title, width + move.clientX - event.clientX] }));
    follow(handle, event, onMove, (end) => { if (end.clientX !== event.clientX) setWidth(model, title, width + end.clientX - event.clientX); });
  }

  function dragTitle(event, button, title) {
    wasDragged = false;
    let target = null;
    const mark = (cell) => { for (const each of head.children) each.classList.toggle("bf-drop", each === cell); };
    const onMove = (move) => {
      wasDragged ||= Math.abs(move.clientX - event.clientX) > DRAG_DISTANCE;
      if (!wasDragged) return;
      target = [...head.children].findIndex((cell) => move.clientX < cell.getBoundingClientRect().right);
      mark(head.children[target]);
    };
    follow(button, event, onMove, () => {
      mark(null);
      if (wasDragged && shown[target]?.title) moveColumn(model, title, shown[target].title);
    });
  }

  function follow(element, event, onMove, onEnd) {
    if (event.button) return;
    const stop = new AbortController(), { signal } = stop;
    element.setPointerCapture(event.pointerId);
    element.addEventListener("pointermove", onMove, { signal });
    for (const name of ["pointerup", "pointercancel"]) {
      element.addEventListener(name, (end) => { stop.abort(); onEnd(end); }, { signal });
    }
  }

  head.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key], buttons = [...head.querySelectorAll("button")];
    if (!step) return;
    focused = buttons.indexOf(event.target);
    event.preventDefault();
    event.stopPropagation();
    if (event.shiftKey && shown[focused].title) {
      const { title } = shown[focused]; // drawn later than the next key may come
      setWidth(model, title, (model.get("column_widths")[title] ?? head.children[focused].offsetWidth) + step * RESIZE_STEP);
    } else if (buttons[focused + step]) {
      buttons[focused].tabIndex = -1;
      focused += step;
      buttons[focused].tabIndex = 0;
      buttons[focused].focus();
    }
  });
  return { head, draw };
}

// A panel that lists all columns: which are shown, and in which order.
function createColumnPanel(model, id, onClose) {
  const panel = createElement("div", "bf-column-panel", "group");
  panel.id = id;
  panel.hidden = true;

  function draw(shown) {
    const focused = document.activeElement?.dataset?.bfKey;
    panel.setAttribute("aria-label", `Columns of ${model.get("label")}`);
    panel.replaceChildren(...orderedColumns(model).map(({ title }, place, all) => createLine(title, place, all.length, shown)), createReset());
    if (!panel.hidden && focused) {
      const again = [...panel.querySelectorAll("[data-bf-key]")].find((element) => element.dataset.bfKey === focused);
      (again && !again.disabled ? again : again?.parentElement.querySelector("input"))?.focus();
    }
  }

  function createLine(title, place, count, shown) {
    const line = createElement("div", "bf-column-line"), label = createElement("label", ""), box = createElement("input", "");
    box.type = "checkbox";
    box.checked = shown.some((column) => column.title === title);
    box.dataset.bfKey = `show ${title}`;
    box.setAttribute("aria-label", `Show ${title}`);
    box.onchange = () => {
      if (!box.checked && shown.filter((column) => column.title).length === 1) box.checked = true; // a table without columns could not be used
      else save(model, { column_choices: { ...model.get("column_choices"), [title]: box.checked } });
    };
    label.append(box, ` ${title}`);
    line.append(label);
    for (const [sign, direction, step] of [["↑", "earlier", -1], ["↓", "later", 1]]) {
      const button = createButton("bf-button", sign, `Move ${title} ${direction}`, () => moveColumn(model, title, step));
      button.dataset.bfKey = `${direction} ${title}`;
      button.disabled = place + step < 0 || place + step >= count;
      line.append(button);
    }
    return line;
  }

  function createReset() {
    const button = createButton("bf-button", "Reset columns", "", () => save(model, { column_order: [], column_widths: {}, column_choices: {} }));
    button.dataset.bfKey = "reset";
    return button;
  }

  panel.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    event.stopPropagation();
    onClose();
  });
  return { panel, draw };
}
