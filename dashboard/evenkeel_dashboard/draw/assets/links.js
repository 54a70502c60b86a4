// Follows links between pages without reloading the dashboard: faster, and users stay signed in.
// Streamlit handles the new address like the browser's Back.
const RANGE = "1h";

export default function () {
  if (globalThis.ekLinks) return;
  globalThis.ekLinks = true;
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.('a[href^="./"]:not([target=_blank])');
    const { button, metaKey, ctrlKey, shiftKey, altKey } = event;
    if (!link || event.defaultPrevented || button || metaKey || ctrlKey || shiftKey || altKey) return;
    event.preventDefault();
    nameRange();
    history.pushState({}, "", link.href);
    dispatchEvent(new PopStateEvent("popstate", { state: {} }));
    const main = document.querySelector("[data-testid=stMain]");
    if (!main) return;
    main.scrollTo(0, 0);
    // The link is gone: move focus to the start of the new page for keyboards and screen readers.
    main.tabIndex = -1;
    main.focus({ preventScroll: true });
  });
}

// Without this, Back to an address without a range would look like a menu click, which keeps the
// current range.
function nameRange() {
  const here = new URL(location);
  if (here.searchParams.has("range") || here.searchParams.has("from")) return;
  here.searchParams.set("range", RANGE);
  history.replaceState(history.state, "", here);
}
