// Follows links between pages without loading the dashboard anew: it is shown at once, and who has
// signed in stays so. Streamlit takes the new address as it takes that of the browser's Back.
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
    // The link is gone: who uses a keyboard or listens goes on where the new page begins.
    main.tabIndex = -1;
    main.focus({ preventScroll: true });
  });
}

// Back to an address without a range would be taken for the menu, which keeps the latest one.
function nameRange() {
  const here = new URL(location);
  if (here.searchParams.has("range") || here.searchParams.has("from")) return;
  here.searchParams.set("range", RANGE);
  history.replaceState(history.state, "", here);
}
