// Finds relays by nickname or fingerprint. The list of all relays is loaded when the field is first used, by a script element, so that
// pages work as files, too.
"use strict";
const root = document.currentScript.dataset.root;
const form = document.getElementById("find");
const field = document.getElementById("search");
const found = document.getElementById("found");
const SHOWN = 30;
let loading = false;
function load() {
  if (loading) return;
  loading = true;
  const script = document.createElement("script");
  script.src = root + "relays.js";
  script.onload = show;
  document.head.append(script);
}
function show() {
  const text = field.value.trim().replace(/^\$/, "").toLowerCase();
  found.hidden = text === "";
  if (found.hidden || !window.relays) return;
  const matches = window.relays.filter(
    ([fingerprint, nickname]) =>
      nickname.toLowerCase().includes(text) || fingerprint.toLowerCase().startsWith(text),
  );
  const list = document.createElement("ul");
  list.className = "facts";
  for (const [fingerprint, nickname, capacity] of matches.slice(0, SHOWN)) {
    const link = document.createElement("a");
    link.href = `${root}relays/${fingerprint.slice(0, 2)}/${fingerprint}.html`;
    link.textContent = nickname;
    const item = document.createElement("li");
    item.append(link, ` ${fingerprint}, ${capacity === null ? "no estimate" : `${capacity} Mbit/s`}`);
    list.append(item);
  }
  const count = document.createElement("p");
  count.textContent =
    matches.length > SHOWN ? `${matches.length} relays; the first ${SHOWN}:` : `${matches.length} found`;
  found.replaceChildren(count, list);
}
form.hidden = false;
field.addEventListener("focus", load);
field.addEventListener("input", () => {
  load();
  show();
});
form.addEventListener("submit", (event) => {
  event.preventDefault();
  const first = found.querySelector("a");
  if (first) first.click();
});
