// Follows links between pages without reloading the dashboard: faster, and users stay signed in.
// Streamlit handles the new address like the browser's Back. Also: the scroll position on Back,
// tables that sort and open, copied ids, keyboard shortcuts, and a menu that closes on a phone.
const RANGE = "1h";
const PHONE = 768;
const HELP = [["/", "search"], ["?", "this help"], ["j, k", "next, previous row of a table"],
  ["← →", "step through the values of a chart"], ["↑ ↓", "step between its lines or cells"],
  ["Enter", "open what is marked"], ["Esc", "close"]];

export default function () {
  if (globalThis.ekLinks) return;
  globalThis.ekLinks = true;
  document.addEventListener("click", follow);
  document.addEventListener("click", act);
  document.addEventListener("keydown", key);
  document.addEventListener("focusin", remember);
  document.addEventListener("focusout", forget);
  document.addEventListener("scroll", keep, { capture: true, passive: true });
  addEventListener("popstate", restore);
  new MutationObserver(() => { changed ||= requestAnimationFrame(refresh); })
    .observe(document.body, { childList: true, subtree: true });
  refresh();
}

const main = () => document.querySelector("[data-testid=stMain]");

function follow(event) {
  const link = event.target.closest?.('a[href^="./"]:not([target=_blank])');
  const { button, metaKey, ctrlKey, shiftKey, altKey } = event;
  if (!link || event.defaultPrevented || button || metaKey || ctrlKey || shiftKey || altKey) return;
  event.preventDefault();
  open(link.href);
}

function open(href) {
  nameRange();
  restoring = 0;
  history.pushState({}, "", href);
  dispatchEvent(new PopStateEvent("popstate", { state: { ekFollowed: true } }));
  const view = main();
  if (!view) return;
  view.scrollTo(0, 0);
  // The link is gone: move focus to the start of the new page for keyboards and screen readers.
  view.tabIndex = -1;
  view.focus({ preventScroll: true });
}

// Without this, Back to an address without a range would look like a menu click, which keeps the
// current range.
function nameRange() {
  const here = new URL(location), top = main()?.scrollTop ?? 0;
  if (!here.searchParams.has("range") && !here.searchParams.has("from")) {
    here.searchParams.set("range", RANGE);
    history.replaceState(history.state, "", here);
  }
  sessionStorage.setItem(place(), top);
}

// The scroll position of each address, restored on Back once the page is long enough again.
let restoring = 0, numRestored = 0;
const place = () => `ek-scroll ${location.pathname}${location.search}`;

function keep(event) {
  if (event.target === main() && !restoring) sessionStorage.setItem(place(), event.target.scrollTop);
}

function restore({ state }) {
  if (state?.ekFollowed) return;
  const wanted = +(sessionStorage.getItem(place()) ?? 0), path = location.pathname;
  restoring = 0;
  if (!wanted) return;
  const mine = restoring = ++numRestored, latest = performance.now() + 60000;
  let until = latest;
  const stop = () => { if (restoring === mine) restoring = 0; };
  for (const name of ["wheel", "touchstart", "pointerdown", "keydown"])
    addEventListener(name, stop, { once: true, passive: true });
  const step = () => {
    const view = main();
    if (restoring !== mine || location.pathname !== path || performance.now() > until) return stop();
    const isLong = view && view.scrollHeight - view.clientHeight >= wanted;
    if (isLong) view.scrollTop = wanted;
    // What is drawn later may move it, or replace the page that was left, if that was as long.
    until = isLong ? Math.min(until, performance.now() + 8000) : latest;
    setTimeout(step, 120);
  };
  step();
}

// Tables: a click on a header sorts; what was sorted or has the focus stays so when the page
// refreshes, which replaces its tables.
let changed = 0, focused = null;
const sorted = new Map(), opened = new Set();
const SIZES = { "µs": 1e-6, ms: 1e-3, s: 1, min: 60, h: 3600, d: 86400, k: 1e3, M: 1e6, G: 1e9 };

function refresh() {
  changed = 0;
  for (const table of document.querySelectorAll(".ek-table table:not([data-sorts])")) {
    table.dataset.sorts = "";
    for (const head of table.tHead.rows[0].cells) {
      if (!canSort(head)) continue;
      head.classList.add("ek-th");
      head.tabIndex = 0;
      head.title = "sort";
    }
    const how = sorted.get(nameOf(table));
    if (how) sort(table, ...how);
    if (opened.has(nameOf(table))) showAll(table.parentElement, true);
    if (focused?.table === nameOf(table)) focusAgain(table);
  }
}

const canSort = (head) => head.textContent && !head.querySelector("a")
  && head.closest("table").tBodies[0].rows.length > 1;

function remember({ target }) {
  const table = target.closest(".ek-table table");
  focused = table && { table: nameOf(table), href: target.getAttribute("href"), column: target.cellIndex };
}

// An element that is removed while it has the focus leaves it to the body, like a click beside it.
function forget({ target }) {
  setTimeout(() => { if (target.isConnected && document.activeElement === document.body) focused = null; });
}

function focusAgain(table) {
  if (document.activeElement !== document.body) return;
  const links = [...table.querySelectorAll("tbody a")];
  const found = focused.href === null ? table.tHead.rows[0].cells[focused.column]
    : links.find((link) => link.getAttribute("href") === focused.href);
  found?.focus({ preventScroll: true });
}

const nameOf = (table) => `${location.pathname} ${table.caption?.textContent}`;

function value(row, column) {
  const cell = row.cells[column], text = (cell?.dataset.v ?? cell?.textContent ?? "").trim();
  if (["", "–", "no data", "no price", "not reported", "unknown"].includes(text)) return null;
  if (cell.dataset.v !== undefined) return isNaN(text) ? text : +text;
  const found = text.match(/^[<>≤≥]?\s*([+−±▲▼-]?)\s*([\d,]*\.?\d+)\s*(µs|ms|s|min|h|d|k|M|G)?(?:\b|[%×]|$)/);
  if (!found || !cell.classList.contains("ek-n")) return text;
  return (/[−▼-]/.test(found[1]) ? -1 : 1) * found[2].replaceAll(",", "") * (SIZES[found[3]] ?? 1);
}

function sort(table, column, falling) {
  const rows = [...table.tBodies[0].rows].map((row) => [value(row, column), row]);
  const order = (a, b) => typeof a === "number" && typeof b === "number" ? a - b
    : String(a).localeCompare(String(b), "en", { numeric: true });
  // Missing values are last either way.
  rows.sort(([a], [b]) => a === null || b === null ? (a === null) - (b === null)
    : (falling ? -1 : 1) * order(a, b));
  table.tBodies[0].append(...rows.map(([, row]) => row));
  [...table.tHead.rows[0].cells].forEach((head, i) => {
    if (i === column) head.setAttribute("aria-sort", falling ? "descending" : "ascending");
    else head.removeAttribute("aria-sort");
  });
}

function sortBy(head) {
  const table = head.closest("table"), now = head.getAttribute("aria-sort"), i = head.cellIndex;
  const isNumber = !!table.tBodies[0].rows[0]?.cells[i]?.classList.contains("ek-n");
  const falling = now ? now === "ascending" : isNumber;
  sorted.set(nameOf(table), [i, falling]);
  sort(table, i, falling);
}

// A table of which only the first rows are shown.
function showAll(box, wanted) {
  const button = box.querySelector(".ek-more");
  if (!button || box.classList.contains("ek-all") === wanted) return;
  box.classList.toggle("ek-all", wanted);
  [button.textContent, button.dataset.less] = [button.dataset.less, button.textContent];
  const name = nameOf(box.querySelector("table"));
  if (wanted) opened.add(name);
  else opened.delete(name);
}

async function act({ target }) {
  const head = target.closest?.(".ek-table thead th"), copy = target.closest?.(".ek-copy"), box = target.closest?.(".ek-short");
  if (target.closest?.(".ek-more")) return showAll(box, !box.classList.contains("ek-all"));
  // Also one that refresh has not reached yet.
  if (head && canSort(head)) return sortBy(head);
  if (copy) {
    await navigator.clipboard?.writeText(copy.dataset.copy);
    copy.classList.add("ek-copied");
    setTimeout(() => copy.classList.remove("ek-copied"), 1200);
  }
  if (target.closest?.("[data-testid=stSidebarNavLink]")) setTimeout(closeMenu);
}

// On a phone, the menu covers the page: it closes when a page is chosen, and at no other time.
// Streamlit does this for some browsers only; its button is there only while the menu is open.
// That the menu is closed when a page is loaded, start_page.py sees to.
function closeMenu() {
  if (innerWidth <= PHONE) document.querySelector("[data-testid=stSidebarCollapseButton] button")?.click();
}

function key(event) {
  const { target, key, ctrlKey, metaKey, altKey } = event;
  if (target.closest?.(".ek-th") && (key === "Enter" || key === " ")) {
    event.preventDefault();
    return sortBy(target.closest(".ek-th"));
  }
  if (ctrlKey || metaKey || altKey || target.closest?.("input, textarea, select, [contenteditable], dialog")) return;
  if (key === "/") search(event);
  else if (key === "?") help();
  else if (key === "j" || key === "k") walk(key === "j" ? 1 : -1, event);
}

// The page's search field, or the Request page's.
const SEARCH = '.st-key-id_field input, [class*="st-key-search"] input';

function search(event) {
  event.preventDefault();
  const field = main()?.querySelector(SEARCH);
  if (field) return field.focus();
  open(new URL("./request", document.baseURI).href);
  let tries = 60;
  const wait = setInterval(() => {
    const found = main()?.querySelector(SEARCH);
    found?.focus();
    if (found || !tries--) clearInterval(wait);
  }, 100);
}

function walk(by, event) {
  const rows = [...(main()?.querySelectorAll(".ek-table tbody tr") ?? [])];
  const all = rows.map((row) => row.querySelector("a")).filter(Boolean);
  if (!all.length) return;
  event.preventDefault();
  const next = all.indexOf(document.activeElement) + by;
  all[Math.min(Math.max(next, 0), all.length - 1)].focus();
}

function help() {
  const box = document.createElement("dialog");
  box.className = "ek-keys";
  box.appendChild(document.createElement("h2")).textContent = "Keyboard shortcuts";
  const list = box.appendChild(document.createElement("dl"));
  for (const [keys, meaning] of HELP) {
    list.appendChild(document.createElement("dt")).textContent = keys;
    list.appendChild(document.createElement("dd")).textContent = meaning;
  }
  box.addEventListener("click", () => box.close());
  box.addEventListener("close", () => box.remove());
  document.body.append(box);
  box.showModal();
}
