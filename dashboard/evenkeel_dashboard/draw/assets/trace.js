// Draws the waterfall of a trace: opens and closes rows, searches them, and renders only the rows in
// view, so that thousands cost no more than a screenful. All words come from the server.
const [DEPTH, SIZE, KIND, TITLE, SERVICE, LEFT, WIDTH, LASTED, TOKENS, COST, ERROR, COLOUR, ID, FLAGS, BEYOND] =
  Array(15).keys();
const VIEW = 1, REQUEST = 2, MOVED = 4, ORPHAN = 8, TWIN = 16;
const MARGIN = 8;

const make = (name, className, text = "") => {
  const element = document.createElement(name);
  element.className = className;
  element.textContent = text;
  return element;
};

class Waterfall {
  constructor(host) {
    this.search = make("input", "ek-trace-search");
    this.search.type = "search";
    this.search.placeholder = "search spans";
    this.search.setAttribute("aria-label", "search spans by name, service, kind or error");
    this.found = make("span", "ek-trace-found");
    this.found.setAttribute("role", "status");
    const open = make("button", "ek-trace-button", "open all"), close = make("button", "ek-trace-button", "close all");
    open.type = close.type = "button";
    const bar = make("div", "ek-trace-bar");
    bar.append(this.search, open, close, this.found);
    this.ticks = make("div", "ek-trace-ticks");
    this.view = make("div", "ek-trace-view");
    this.view.tabIndex = 0;
    this.view.setAttribute("role", "tree");
    this.view.setAttribute("aria-label", "spans of the trace");
    this.all = make("div", "ek-trace-all");
    this.view.append(this.all);
    host.append(bar, this.ticks, this.view);
    this.search.addEventListener("input", () => this.lay());
    open.addEventListener("click", () => { this.closed.clear(); this.lay(); });
    close.addEventListener("click", () => {
      this.data.rows.forEach((row, place) => row[SIZE] && this.closed.add(place));
      this.lay();
    });
    this.view.addEventListener("scroll", () => this.draw(), { passive: true });
    this.view.addEventListener("keydown", (event) => this.key(event));
    this.all.addEventListener("click", (event) => this.click(event));
    new ResizeObserver(() => this.resize()).observe(this.view);
  }

  show(data) {
    const isNew = this.data?.trace !== data.trace;
    this.data = data;
    this.wanted = new Set(data.wanted);
    if (isNew) {
      this.closed = new Set(data.folded);
      this.search.value = "";
      this.active = data.rows.findIndex((row) => this.wanted.has(row[ID]));
    }
    this.ticks.replaceChildren(...data.ticks.map((tick) => make("span", "", tick)));
    this.lay();
    if (!isNew || this.active <= 0) return;
    // The height of a row is final only once the card has its width.
    this.waiting = this.active;
    this.reveal(this.active);
    setTimeout(() => { this.waiting = 0; }, 800);
  }

  word(row, field) { return this.data.words[row[field]]; }

  // Which rows are visible: those whose ancestors are open, or those that match and what they are in.
  lay() {
    const rows = this.data.rows, text = this.search.value.trim().toLowerCase();
    this.shown = [];
    if (!text) {
      for (let place = 0; place < rows.length; place++) {
        this.shown.push(place);
        if (this.closed.has(place)) place += rows[place][SIZE];
      }
      this.found.textContent = "";
    } else {
      const hits = this.data.words.map((word) => word.toLowerCase().includes(text));
      const above = [];
      let drawn = -1, number = 0;
      rows.forEach((row, place) => {
        above.length = row[DEPTH];
        above[row[DEPTH]] = place;
        if (!(hits[row[KIND]] || hits[row[TITLE]] || hits[row[SERVICE]] || hits[row[ERROR]] || row[ID] === text)) return;
        number++;
        for (const each of above) if (each > drawn) this.shown.push(drawn = each);
      });
      this.found.textContent = `${number.toLocaleString("en")} of ${rows.length.toLocaleString("en")} rows match`;
    }
    this.resize();
  }

  resize() {
    if (!this.data) return;
    this.height = this.view.clientWidth < 620 ? 46 : 27;
    this.all.style.height = `${this.shown.length * this.height}px`;
    this.draw();
    if (this.waiting) this.reveal(this.waiting);
  }

  draw() {
    const first = Math.max(0, Math.floor(this.view.scrollTop / this.height) - MARGIN);
    const last = Math.min(this.shown.length, first + Math.ceil(this.view.clientHeight / this.height) + 2 * MARGIN);
    const rows = [];
    for (let at = first; at < last; at++) rows.push(this.row(this.shown[at], at));
    this.all.replaceChildren(...rows);
  }

  row(place, at) {
    const row = this.data.rows[place], flags = row[FLAGS], is_open = !this.closed.has(place);
    const line = make("div", "ek-trace-row");
    line.style.top = `${at * this.height}px`;
    line.style.height = `${this.height}px`;
    line.dataset.place = place;
    line.setAttribute("role", "treeitem");
    line.setAttribute("aria-level", row[DEPTH] + 1);
    if (row[SIZE]) line.setAttribute("aria-expanded", is_open);
    line.classList.toggle("ek-trace-wanted", this.wanted.has(row[ID]));
    line.classList.toggle("ek-trace-active", place === this.active);
    const name = make("div", "ek-trace-name");
    name.style.paddingLeft = `${Math.min(row[DEPTH], 14) * (this.height > 30 ? 8 : 14)}px`;
    const toggle = make(row[SIZE] ? "button" : "i", "ek-trace-toggle", row[SIZE] ? (is_open ? "▼" : "▶") : "");
    if (row[SIZE]) { toggle.type = "button"; toggle.tabIndex = -1; toggle.setAttribute("aria-label", is_open ? "close" : "open"); }
    const title = this.link(row, "ek-trace-title", this.word(row, TITLE));
    const kind = make("small", "", [this.word(row, KIND), this.word(row, SERVICE)].filter(Boolean).join(" · "));
    name.append(toggle, title, kind);
    if (flags & REQUEST) name.append(make("em", "", "request"));
    const lane = make("div", "ek-trace-lane"), bar = this.link(row, "ek-trace-bar-of", "");
    bar.style.left = `${Math.min(99.7, row[LEFT] * 100)}%`;
    bar.style.width = `${Math.max(0, Math.min(100, row[WIDTH] * 100))}%`;
    bar.style.background = this.word(row, COLOUR);
    lane.append(bar);
    if (row[BEYOND]) {
      lane.classList.add(row[BEYOND] === "▸" ? "ek-trace-cut" : "ek-trace-later");
      lane.append(make("span", "ek-trace-beyond", row[BEYOND]));
    }
    const error = this.word(row, ERROR);
    line.classList.toggle("ek-trace-failed", !!error);
    const lasted = make("span", "ek-trace-lasted", row[LASTED]);
    const tokens = make("span", "ek-trace-tokens", row[TOKENS]), cost = make("span", "ek-trace-cost", row[COST]);
    if (flags & VIEW && row[TOKENS]) { tokens.classList.add("ek-trace-view-of"); tokens.title = "not counted: another span of the call is"; }
    line.append(name, lane, lasted, tokens, cost);
    if (error) { const said = make("b", "ek-trace-error", "▲ failed"); said.title = error; name.append(said); }
    line.title = [this.word(row, TITLE), `${this.word(row, KIND)} · ${this.word(row, SERVICE)}`, row[LASTED],
      row[TOKENS] && `${row[TOKENS]} tokens`, row[COST], error, row[BEYOND].length > 1 && `began ${row[BEYOND].slice(1, -2)} after the call had ended`, flags & MOVED && "moved: its clock differs",
      flags & ORPHAN && "its parent was not received", flags & TWIN && "another span has its id"]
      .filter(Boolean).join("\n");
    return line;
  }

  link(row, className, text) {
    const element = make(row[ID] ? "a" : "span", className, text);
    if (row[ID]) {
      element.href = this.data.before + encodeURIComponent(row[ID]) + this.data.after;
      element.tabIndex = -1;
      if (!text) element.setAttribute("aria-label", `details of ${this.word(row, TITLE)}`);
    }
    return element;
  }

  click(event) {
    const line = event.target.closest(".ek-trace-row");
    if (!line || event.target.closest("a")) return;
    this.flip(+line.dataset.place);
  }

  flip(place) {
    if (!this.data.rows[place][SIZE] || this.search.value.trim()) return;
    if (!this.closed.delete(place)) this.closed.add(place);
    this.active = place;
    this.lay();
  }

  key(event) {
    const at = this.shown.indexOf(this.active), row = this.data.rows[this.active];
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 15, PageUp: -15 }[event.key];
    if (step) {
      this.active = this.shown[Math.max(0, Math.min(this.shown.length - 1, at + step))];
      this.reveal(this.active);
    } else if (event.key === "ArrowRight" && row && this.closed.has(this.active)) this.flip(this.active);
    else if (event.key === "ArrowLeft" && row?.[SIZE] && !this.closed.has(this.active)) this.flip(this.active);
    else if (event.key === "Enter" && row)
      this.all.querySelector(".ek-trace-active a")?.click();
    else return;
    event.preventDefault();
  }

  reveal(place) {
    const at = this.shown.indexOf(place);
    if (at < 0) return;
    const top = at * this.height, seen = this.view.clientHeight;
    if (top < this.view.scrollTop || top + this.height > this.view.scrollTop + seen)
      this.view.scrollTop = Math.max(0, top - seen / 3);
    this.draw();
  }
}

export default function ({ parentElement, data }) {
  let host = parentElement.querySelector(".ek-trace");
  if (!host) {
    host = make("div", "ek-trace");
    parentElement.append(host);
    host.live = new Waterfall(host);
  }
  host.live.show(data);
}
