"use strict";
// Shows values at the pointer, and hides series by a click on their name. Without this script, figures are static.
for (const figure of document.querySelectorAll("figure.plot")) {
  const svg = figure.querySelector("svg");
  const series = JSON.parse(figure.querySelector("script").textContent);
  const groups = svg.querySelectorAll(".series");
  const shown = series.map(() => true);
  const tip = figure.appendChild(document.createElement("div"));
  const cursor = svg.appendChild(document.createElementNS(svg.namespaceURI, "circle"));
  cursor.setAttribute("class", "cursor");
  cursor.setAttribute("r", 7);
  tip.className = "tip";
  const hide = () => {
    tip.hidden = true;
    cursor.style.display = "none";
  };
  hide();

  svg.querySelectorAll(".key").forEach((key, index) => {
    const toggle = () => {
      shown[index] = !shown[index];
      key.setAttribute("aria-pressed", shown[index]);
      groups[index].style.display = shown[index] ? "" : "none";
      hide();
    };
    key.setAttribute("role", "button");
    key.setAttribute("tabindex", 0);
    key.setAttribute("aria-pressed", true);
    key.addEventListener("click", toggle);
    key.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      toggle();
    });
  });

  const nearest = (points, at) => {
    const distance = ([x, y]) => Math.hypot(x - at.x, y - at.y);
    return points.reduce((best, it) => (best && distance(best) <= distance(it) ? best : it), null);
  };

  svg.addEventListener("pointermove", (event) => {
    const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
    const visible = series.filter((_, index) => shown[index]);
    const here = nearest(visible.flatMap(([, points]) => points), at);
    if (!here || Math.hypot(here[0] - at.x, here[1] - at.y) > 40) return hide();
    // Shows the values of the other series at the same x as well.
    const lines = visible.flatMap(([name, points]) =>
      points.filter(([x]) => x === here[0]).slice(0, 3).map(([, , text]) => `${name}: ${text}`),
    );
    tip.replaceChildren(...lines.map((line) => Object.assign(document.createElement("div"), { textContent: line })));
    tip.hidden = false;
    const frame = figure.getBoundingClientRect();
    const isRight = event.clientX - frame.left > frame.width / 2;
    tip.style.top = `${event.clientY - frame.top + 14}px`;
    tip.style.left = isRight ? "" : `${event.clientX - frame.left + 14}px`;
    tip.style.right = isRight ? `${frame.right - event.clientX + 14}px` : "";
    cursor.setAttribute("cx", here[0]);
    cursor.setAttribute("cy", here[1]);
    cursor.style.display = "";
  });
  svg.addEventListener("pointerleave", hide);
}
