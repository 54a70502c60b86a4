// Follows links between pages without loading the dashboard anew: it is shown at once, and who has
// signed in stays so. Streamlit takes the new address as it takes that of the browser's Back.
export default function () {
  if (globalThis.ekLinks) return;
  globalThis.ekLinks = true;
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.('a[href^="./"]');
    const { button, metaKey, ctrlKey, shiftKey, altKey } = event;
    if (!link || event.defaultPrevented || button || metaKey || ctrlKey || shiftKey || altKey) return;
    event.preventDefault();
    history.pushState({}, "", link.href);
    dispatchEvent(new PopStateEvent("popstate", { state: {} }));
    document.querySelector("[data-testid=stMain]")?.scrollTo(0, 0);
  });
}
