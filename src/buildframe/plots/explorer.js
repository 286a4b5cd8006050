// Draws builds as points on a canvas, and the rest as elements in the theme's colors. Text is set by textContent only.
const REACH = 12, DRAG = 4; // pixels: how near a build the pointer is, and from when a press is a drag
const KEYS = "Arrow keys move between builds, Enter opens one, Shift and an arrow key select a period, Escape clears it.";
const SIGNS = { disc: "●", cross: "✕", square: "■", triangle: "△", diamond: "◆" };
const SHAPES = {
  disc: (c, x, y, r) => { c.moveTo(x + r, y); c.arc(x, y, r, 0, 7); },
  cross: (c, x, y, r) => { c.moveTo(x - r, y - r); c.lineTo(x + r, y + r); c.moveTo(x - r, y + r); c.lineTo(x + r, y - r); },
  square: (c, x, y, r) => c.rect(x - r, y - r, 2 * r, 2 * r),
  triangle: (c, x, y, r) => { c.moveTo(x, y - 1.4 * r); c.lineTo(x + 1.3 * r, y + r); c.lineTo(x - 1.3 * r, y + r); c.closePath(); },
  diamond: (c, x, y, r) => { c.moveTo(x, y - 1.3 * r); c.lineTo(x + 1.3 * r, y); c.lineTo(x, y + 1.3 * r); c.lineTo(x - 1.3 * r, y); c.closePath(); },
};
const LINES = new Set(["cross", "triangle"]); // shapes that are not filled

function create(tag, name, text = "", parent = null) {
  const element = document.createElement(tag);
  element.className = `bf-explorer-${name}`;
  element.textContent = text;
  parent?.append(element);
  return element;
}

async function decompress(view) {
  return new Response(new Blob([view]).stream().pipeThrough(new DecompressionStream("deflate"))).json();
}

const count = (n) => `${n.toLocaleString("en")} ${n === 1 ? "build" : "builds"}`;
const time = (micros) => new Date(micros / 1000).toISOString().slice(0, 19).replace("T", " ");

function drawAxes(plot, area, data) {
  for (const [place, label] of data.durations) {
    create("i", "line-across", "", area).style.bottom = `${100 * place}%`;
    create("span", "duration", label, area).style.bottom = `${100 * place}%`;
  }
  for (const [place, label] of data.dates) {
    create("i", "line-up", "", area).style.left = `${100 * place}%`;
    create("span", "date", label, area).style.left = `${100 * place}%`;
  }
  create("div", "title-up", data.scale, plot);
  create("div", "title-across", `created (UTC)${data.period ? `, ${data.period}` : ""}`, plot);
}

function drawLegend(parent, data) {
  const legend = create("div", "legend", "", parent);
  for (const { name, color, shape, n } of data.kinds.filter((kind) => kind.n)) {
    const entry = create("span", "kind", "", legend), sign = create("b", "sign", SIGNS[shape], entry);
    sign.style.color = color;
    sign.setAttribute("aria-hidden", "true");
    entry.append(`${name} ${n.toLocaleString("en")}`);
  }
  if (data.note) create("div", "note", data.note, parent);
}

function stamp({ color, shape }, radius, ratio) {
  const size = Math.ceil((2 * 1.4 * radius + 4) * ratio), mark = document.createElement("canvas"), context = mark.getContext("2d");
  mark.width = mark.height = size;
  context.scale(ratio, ratio);
  context.lineWidth = 1.4;
  context.fillStyle = context.strokeStyle = color;
  SHAPES[shape](context, size / ratio / 2, size / ratio / 2, radius);
  if (LINES.has(shape)) context.stroke(); else context.fill();
  return mark;
}

function drawPoints(canvas, data, x, y) {
  const { width, height } = canvas.getBoundingClientRect(), ratio = window.devicePixelRatio || 1, n = data.created.length;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const context = canvas.getContext("2d");
  context.globalAlpha = n > 20000 ? 0.4 : n > 2000 ? 0.6 : 0.85;
  const marks = data.kinds.map((kind) => stamp(kind, n > 20000 ? 1.4 : n > 5000 ? 2 : 3, ratio));
  const half = marks[0].width / 2;
  // One by one in order of creation: density is visible, and no state hides the others.
  data.y.forEach((place, k) => { if (place !== null) context.drawImage(marks[data.kind[k]], x(k) * ratio - half, y(k) * ratio - half); });
}

async function render({ model, el }) {
  const data = await decompress(model.get("_points")), [low, high] = data.range;
  const root = create("div", "root", "", el);
  create("div", "title", data.title, root);
  drawLegend(root, data);
  const plot = create("div", "plot", "", root), area = create("div", "area", "", plot);
  const keys = create("span", "hidden", KEYS, root), spoken = create("span", "hidden", "", root);
  drawAxes(plot, area, data);
  const canvas = create("canvas", "points", "", area), before = create("i", "outside", "", area), after = create("i", "outside", "", area);
  const ring = create("i", "ring", "", area), card = create("div", "card", "", area);
  const foot = create("div", "foot", "", root), status = create("span", "status", "", foot), button = create("button", "clear", "Clear selection", foot);
  keys.id = `bf-explorer-${crypto.getRandomValues(new Uint32Array(2)).join("-")}`;
  spoken.setAttribute("aria-live", "polite");
  status.setAttribute("role", "status");
  button.type = "button";
  plot.tabIndex = 0;
  plot.dataset.lmSuppressShortcuts = "true"; // otherwise JupyterLab uses the arrows to move between cells
  plot.setAttribute("role", "application");
  plot.setAttribute("aria-label", `Plot of builds. ${model.get("summary")}`);
  plot.setAttribute("aria-describedby", keys.id);

  let width = 1, height = 1, at = -1, anchor = -1, press = null, wasDragged = false;
  const drawn = data.y.flatMap((y, k) => (y === null ? [] : [k])); // in order of creation
  const opens = drawn.some((k) => data.url[k] !== null);
  const hint = drawn.length ? `Drag to select a period.${opens ? " Click a build to open its page." : ""}` : "There is nothing to select.";
  const x = (k) => (width * (data.created[k] - low)) / (high - low), y = (k) => height * (1 - data.y[k]);
  const clamp = (pixels) => Math.min(Math.max(pixels, 0), width);
  const micros = (pixels) => Math.round(low + (clamp(pixels) / width) * (high - low));

  function show(k) {
    at = k;
    ring.hidden = card.hidden = k < 0;
    plot.dataset.opens = k >= 0 && data.url[k] !== null;
    if (k < 0) return;
    card.textContent = data.text[k];
    ring.style.translate = `${x(k)}px ${y(k)}px`;
    card.classList.toggle("bf-explorer-left", x(k) > width / 2);
    card.classList.toggle("bf-explorer-up", y(k) > height / 2);
    card.style.translate = `${x(k)}px ${y(k)}px`;
  }

  function nearest(px, py) {
    let best = -1, least = REACH ** 2;
    for (const k of drawn) {
      const distance = (x(k) - px) ** 2 + (y(k) - py) ** 2;
      if (distance <= least) [best, least] = [k, distance];
    }
    return best;
  }

  function open(k) {
    if (k >= 0 && data.url[k] !== null) window.open(data.url[k], "_blank", "noopener,noreferrer");
  }

  function showPeriod(period) {
    const [from, to] = period.length ? period : [low, high];
    before.style.width = `${(100 * Math.max(from - low, 0)) / (high - low)}%`;
    after.style.left = `${(100 * Math.min(to - low, high - low)) / (high - low)}%`;
    before.hidden = after.hidden = button.hidden = !period.length;
    const n = data.created.filter((created) => from <= created && created < to).length;
    status.textContent = period.length
      ? `${count(n)} of ${data.n.toLocaleString("en")} selected, created from ${time(from)} to ${time(to)} UTC.`
      : `No period is selected. ${hint}`;
  }

  function select(period) {
    model.set("_period", period);
    model.save_changes();
  }

  function place({ clientX, clientY }) {
    const box = area.getBoundingClientRect();
    return [clientX - box.left, clientY - box.top];
  }

  area.onpointerdown = (event) => {
    if (event.button !== 0) return;
    press = place(event)[0];
    wasDragged = false;
    area.setPointerCapture(event.pointerId);
  };
  area.onpointermove = (event) => {
    const [px, py] = place(event);
    if (press !== null && (wasDragged || Math.abs(px - press) > DRAG)) {
      wasDragged = true;
      show(-1);
      showPeriod([press, px].map(micros).sort((a, b) => a - b));
    } else show(nearest(px, py));
  };
  area.onpointerup = (event) => {
    if (press !== null && wasDragged) select([press, place(event)[0]].map(micros).sort((a, b) => a - b));
    press = null;
  };
  area.onpointercancel = () => { press = null; showPeriod(model.get("_period")); };
  area.onpointerleave = () => { if (press === null) show(-1); };
  area.onclick = (event) => { if (!wasDragged) open(nearest(...place(event))); };
  button.onclick = () => { plot.focus(); select([]); };

  function move(steps, extends_) {
    const last = drawn.length - 1, from = at >= 0 ? drawn.indexOf(at) : steps < 0 ? last + 1 : -1;
    if (last < 0) return;
    if (!extends_) anchor = -1;
    else if (anchor < 0) anchor = Math.max(at, drawn[0]);
    show(drawn[Math.min(Math.max(from + steps, 0), last)]);
    spoken.textContent = card.textContent;
    if (extends_) select([Math.min(data.created[anchor], data.created[at]), Math.max(data.created[anchor], data.created[at]) + 1]);
  }
  const page = Math.max(10, Math.round(drawn.length / 20));
  const steps = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageUp: -page, PageDown: page, Home: -Infinity, End: Infinity };
  plot.onkeydown = (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    if (event.key in steps) move(steps[event.key], event.shiftKey);
    else if (event.key === "Enter") open(at);
    else if (event.key === "Escape") { anchor = -1; show(-1); select([]); }
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  plot.onblur = () => show(-1);

  const resized = new ResizeObserver(() => {
    ({ width, height } = area.getBoundingClientRect());
    show(-1);
    if (width && height) drawPoints(canvas, data, x, y);
  });
  resized.observe(area);
  const changed = () => showPeriod(model.get("_period"));
  model.on("change:_period", changed);
  changed();
  return () => { resized.disconnect(); model.off("change:_period", changed); };
}

export default { render };
