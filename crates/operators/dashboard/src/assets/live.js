// Updates the marked parts of a page after each event, except a part that has the focus.
"use strict";
const parts = () => document.querySelectorAll("[data-live][id]");
let timer;
async function renew() {
  try {
    const answer = await fetch(location.href, { credentials: "same-origin" });
    if (!answer.ok) return;
    const text = await answer.text();
    const fresh = new DOMParser().parseFromString(text, "text/html");
    for (const part of parts()) {
      const other = fresh.getElementById(part.id);
      if (other && !part.contains(document.activeElement) && other.innerHTML !== part.innerHTML) {
        part.replaceChildren(...other.childNodes);
      }
    }
  } catch {
    // The next event retries.
  }
}
if (parts().length > 0) {
  const source = new EventSource("/events");
  source.onmessage = () => {
    clearTimeout(timer);
    timer = setTimeout(renew, 300);
  };
}
