// Mounts the server's charts, shows values at the pointer or arrow keys, and reports the dragged
// range or the picked point. It is sent once per page, not with each refresh;
// each chart's own script (frame/zoom.py) puts its component into the queue `ekCharts`.
const PAIR = /[ML]([-+\d.e]+) ([-+\d.e]+)/g;
const BAR = /M([-+\d.e]+) ([-+\d.e]+)V([-+\d.e]+)/g;
// Numbers, durations and times as draw/formats.py writes them.
function digits(v, n) {
  const places = n - 1 - v.toExponential(n - 1).split("e")[1];
  return v.toLocaleString("en", { maximumFractionDigits: Math.min(Math.max(places, 0), 20) }).replace("-", "−");
}
const three = (v) => digits(v, 3);
const seconds = (v) => v < 0 ? `−${seconds(-v)}` : v === 0 ? "0 ms"
  : v < 0.0009995 ? `${three(v * 1e6)} µs` : v < 0.9995 ? `${three(v * 1e3)} ms`
  : v < 119.5 ? `${three(v)} s` : v < 7200 ? `${three(v / 60)} min`
  : v < 172800 ? `${three(v / 3600)} h` : `${three(v / 86400)} d`;
const SUFFIXES = [[1e3, "k"], [1e6, "M"], [1e9, "G"]];
function count(v) {
  if (v < 99999.5) return Math.round(v).toLocaleString("en");
  // From where three digits round up to the next unit.
  const [size, suffix] = SUFFIXES.find(([size]) => v < 999.5 * size) ?? SUFFIXES.at(-1);
  return `${three(v / size)} ${suffix}`;
}
// Near 100 enough nines, never rounded up.
function percent(v) {
  if (!(v >= 99 && v < 100)) return digits(v, Math.abs(v) < 1 ? 2 : 3);
  const size = 10 ** (Math.min(Math.max(2, Math.ceil(-Math.log10(1 - v / 100))), 6) - 1);
  return String(Math.floor(v * size + 1e-9) / size);
}
const SIZES = { s: 1, ms: 1e-3 };
const said = (v, unit) => unit in SIZES ? seconds(v * SIZES[unit]) : unit === "%" ? `${percent(v)}%`
  : `${v < 9999.5 ? three(v) : count(v)}${unit && (/^[/%]/.test(unit) ? "" : " ") + unit}`;
const clock = { day: "2-digit", month: "short", hour: "2-digit", minute: "2-digit",
  second: "2-digit", hour12: false };
const offset = (ms, zone) => new Date(ms).toLocaleString("en-GB",
  { timeZone: zone, timeZoneName: "shortOffset" }).split(" ").pop().replace("GMT", "UTC");
// The name is that of the zone at the end of the axis: before a change of clocks it was another.
const moment = (ms, end, zone, name) => new Date(ms).toLocaleString("en-GB", { ...clock, timeZone: zone })
  + ` ${offset(ms, zone) === offset(end, zone) ? name : offset(ms, zone)}`;
// All charts on the page: one crosshair for those over time.
const charts = new Set();

// Those over time stand under each other: their y labels have the room that the widest needs.
function align() {
  const timed = [...charts].filter((chart) => chart.host.isConnected && chart.x === "time");
  const widest = Math.max(...timed.map((chart) => chart.labels));
  for (const { chart } of timed) chart.style.setProperty("--ek-w", `${widest}ch`);
}

// The data of one path: [x, value, lower end, upper end] of each point, bar or cell.
function read(path) {
  const { kind, name, counts } = path.dataset, d = path.getAttribute("d");
  const numbers = (counts ?? "").split(" ").map(Number);
  const points = kind === "line"
    ? Array.from(d.matchAll(PAIR), (m) => [+m[1], +m[2], +m[2], +m[2]])
    : Array.from(d.matchAll(BAR), (m, i) =>
        [+m[1], kind === "cell" ? numbers[i] : m[3] - m[2], +m[2], +m[3]]);
  return { kind, name, colour: path.getAttribute("stroke"), points };
}

class Live {
  constructor(host) {
    this.host = host;
    charts.add(this);
    this.from = this.at = null;
    const on = (name, act) => host.addEventListener(name, act);
    on("pointermove", (e) => this.move(e));
    on("pointerleave", () => this.hide());
    on("pointerdown", (e) => this.press(e));
    on("pointerup", (e) => this.release(e));
    on("pointercancel", () => { this.from = null; this.hide(); });
    on("keydown", (e) => this.key(e));
    on("focusout", () => this.hide());
  }

  show(html) {
    // Not during a drag, because it would change the selected range.
    if (this.html === html || this.from !== null) return;
    const hadFocus = this.host.contains(document.activeElement);
    this.html = html;
    this.host.innerHTML = html;
    this.chart = this.host.firstElementChild;
    this.plot = this.chart.querySelector(".ek-plot");
    this.series = null;
    const data = this.chart.dataset;
    for (const name of ["begin", "step", "left", "right", "bottom", "top"]) this[name] = +data[name];
    this.x = data.x;
    this.labels = parseFloat(this.chart.style.getPropertyValue("--ek-w"));
    align();
    if (hadFocus) this.chart.focus();
    if (this.at) this.say(this.at.x, this.at.y);
  }

  place(event) {
    const box = this.plot.getBoundingClientRect();
    const part = (v) => Math.min(1, Math.max(0, v));
    return { x: this.left + part((event.clientX - box.left) / box.width) * (this.right - this.left),
      y: this.top - part((event.clientY - box.top) / box.height) * (this.top - this.bottom) };
  }

  // The points at a position: the nearest of each line or bar, or the single cell.
  near(x, y) {
    this.series ??= Array.from(this.chart.querySelectorAll("path[data-kind]"), read);
    const reach = { time: 0.5, since: (this.right - this.left) / 100, duration: Infinity }[this.x], found = [];
    for (const one of this.series) {
      let best = null;
      for (const p of one.points) {
        if (one.kind === "cell" && !(Math.abs(p[0] - x) <= 0.5 && p[2] <= y && y < p[3])) continue;
        if (best === null || Math.abs(p[0] - x) < Math.abs(best[0] - x)) best = p;
      }
      if (best && Math.abs(best[0] - x) > reach) best = null;
      if (best || one.kind !== "cell") found.push({ ...one, point: best });
    }
    return found;
  }

  say(x, y) {
    const found = this.near(x, y), hit = found.find((f) => f.point);
    this.clear();
    if (!found.length) return;
    this.at = { x, y };
    const at = hit ? hit.point[0] : x;
    // The middle of the first step can be before the range.
    const part = Math.min(1, Math.max(0, (at - this.left) / (this.right - this.left)));
    const cursor = this.add("ek-cursor"), box = this.add("ek-said");
    cursor.style.left = `${part * 100}%`;
    box.style[part > 0.6 ? "right" : "left"] = `calc(${(part > 0.6 ? 1 - part : part) * 100}% + 10px)`;
    box.setAttribute("role", "status");
    const { begin, step } = this, { unit } = this.chart.dataset;
    const { zone, zoneName } = this.chart.dataset;
    const head = this.x === "since" ? `${seconds(at)} since arrival` : this.x === "time"
      ? moment(begin + (hit?.kind === "line" ? at : Math.floor(at)) * step, begin + this.right * step,
          zone, zoneName)
      : `took up to ${seconds(10 ** at)}`;
    this.add("", box).textContent = head;
    this.share(at);
    for (const { kind, name, colour, point } of found) {
      const row = this.add("ek-said-row", box);
      this.add("", row, "i").style.background = colour;
      if (kind === "cell")
        row.append(`${said(point[1], "")} in ${seconds(10 ** point[2])} – ${seconds(10 ** point[3])}`);
      else {
        row.append(name);
        this.add("", row, "b").textContent = point ? said(point[1], unit) : "no data";
      }
    }
    const stacked = found.filter((f) => f.kind === "bar" && f.point);
    if (stacked.length > 1 && this.x === "time") {
      const row = this.add("ek-said-row", box);
      this.add("", row, "i");
      row.append("total");
      this.add("", row, "b").textContent = said(stacked.reduce((sum, f) => sum + f.point[1], 0), unit);
    }
  }

  add(name, to = this.plot, tag = "div") {
    const made = document.createElement(tag);
    if (name) made.className = name;
    to.append(made);
    return made;
  }

  clear() { this.plot?.querySelectorAll(".ek-cursor, .ek-said").forEach((e) => e.remove()); }

  hide() {
    this.at = null;
    for (const chart of charts) chart.clear();
  }

  // Mark the same time in the page's other charts.
  share(at) {
    if (this.x !== "time") return;
    for (const chart of charts) {
      if (!chart.host.isConnected) charts.delete(chart);
      else if (chart !== this && chart.x === "time") chart.mark(this.begin + at * this.step);
    }
  }

  mark(time_ms) {
    this.clear();
    const part = ((time_ms - this.begin) / this.step - this.left) / (this.right - this.left);
    if (part >= 0 && part <= 1) this.add("ek-cursor").style.left = `${part * 100}%`;
  }

  move(event) {
    const { x, y } = this.place(event);
    if (this.from === null) return this.plot.contains(event.target) ? this.say(x, y) : this.hide();
    const part = (v) => ((v - this.left) / (this.right - this.left)) * 100;
    this.clear();
    const cover = this.plot.querySelector(".ek-cover") ?? this.add("ek-cover");
    cover.style.left = `${part(Math.min(x, this.from))}%`;
    cover.style.width = `${Math.abs(part(x) - part(this.from))}%`;
  }

  press(event) {
    if (event.button !== 0 || !this.plot.contains(event.target)) return;
    this.from = this.place(event).x;
    this.pressed = event.clientX;
    this.host.setPointerCapture(event.pointerId);
    event.preventDefault();
    this.chart.focus({ preventScroll: true });
  }

  release(event) {
    if (this.from === null) return;
    const { x, y } = this.place(event), from = this.from;
    this.from = null;
    this.plot.querySelector(".ek-cover")?.remove();
    if (Math.abs(event.clientX - this.pressed) < 5) this.pick(x, y);
    else if (this.x !== "duration")
      this.send("range", [from, x].sort((a, b) => a - b).map((v) => Math.round(this.begin + v * this.step)));
    if (this.pending) this.show(this.pending);
  }

  pick(x, y) {
    if (!this.picks) return;
    const away = ({ point }) => Math.max(0, point[2] - y, y - point[3]);
    const [hit] = this.near(x, y).filter((f) => f.point).sort((a, b) => away(a) - away(b));
    if (!hit) return;
    const [at, value, low, high] = hit.point;
    const step = hit.kind === "line" ? at : Math.floor(at);
    this.send("point", { at_ms: Math.round(this.begin + step * this.step), name: hit.name,
      value, middle: (low + high) / 2 });
  }

  key(event) {
    const steps = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowDown: [0, -1], ArrowUp: [0, 1] };
    if (event.key === "Escape") return this.hide();
    this.near(this.left, this.bottom);
    const all = this.series.flatMap((one) => one.points.map((p) => [p[0], (p[2] + p[3]) / 2]));
    if (!all.length) return;
    const [sideways, upwards] = steps[event.key] ?? [0, 0];
    if (event.key === "Enter" && this.at) return this.pick(this.at.x, this.at.y);
    if (!sideways && !upwards) return;
    event.preventDefault();
    const now = this.at ?? { x: sideways > 0 ? -Infinity : Infinity, y: 0 };
    const beyond = all.filter(([x, y]) => sideways ? (x - now.x) * sideways > 1e-9
      : Math.abs(x - now.x) < 1e-9 && (y - now.y) * upwards > 1e-9);
    if (!beyond.length) return;
    const far = ([x, y]) => Math.abs(x - now.x) * (sideways ? 1e9 : 0) + Math.abs(y - now.y);
    const [x, y] = sideways && !Number.isFinite(now.x)
      ? beyond.sort((a, b) => (a[0] - b[0]) * sideways)[0] : beyond.sort((a, b) => far(a) - far(b))[0];
    this.say(x, y);
  }
}

function draw({ parentElement, data, setTriggerValue }) {
  let host = parentElement.querySelector(".ek-host");
  if (!host) {
    host = document.createElement("div");
    host.className = "ek-host";
    parentElement.append(host);
    host.live = new Live(host);
  }
  Object.assign(host.live, { send: setTriggerValue, pending: data.html, picks: data.picks });
  host.live.show(data.html);
}

export default function () {
  const waiting = globalThis.ekCharts ?? [];
  if (!Array.isArray(waiting)) return;
  globalThis.ekCharts = { push: draw };
  waiting.forEach(draw);
}
