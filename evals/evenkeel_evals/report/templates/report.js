// Shows only the items that contain every search word; without JavaScript, all are shown.
(function () {
  "use strict";
  const box = document.getElementById("search");
  const count = document.getElementById("found");
  const items = Array.from(document.querySelectorAll("details.item"));
  let texts = null;
  function filter() {
    texts = texts || items.map((item) => item.textContent.toLowerCase());
    const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    items.forEach((item, i) => {
      const matches = words.every((word) => texts[i].includes(word));
      item.hidden = !matches;
      shown += matches;
    });
    count.textContent = words.length ? shown + " of " + items.length + " items" : "";
  }
  let due = 0;
  box.addEventListener("input", () => {
    clearTimeout(due);
    due = setTimeout(filter, 80);
  });
  if (items.length) box.parentElement.hidden = false;
})();
