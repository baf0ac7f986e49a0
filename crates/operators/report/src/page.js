"use strict";
// Shows the values of all series at the pointer, and hides series by a click on their name. Without this script, browsers show the value of
// the point at the pointer.
for (const svg of document.querySelectorAll("figure.plot svg")) {
  const figure = svg.parentElement;
  const series = [...svg.querySelectorAll(".series")].map((group) => {
    const points = [...group.querySelectorAll("circle")].map((circle) => {
      const point = { x: +circle.getAttribute("cx"), y: +circle.getAttribute("cy"), text: circle.textContent };
      // Else the browser shows the value, too.
      circle.remove();
      return point;
    });
    return { group, points, isShown: true };
  });
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
      const one = series[index];
      one.isShown = !one.isShown;
      key.setAttribute("aria-pressed", one.isShown);
      one.group.style.display = one.isShown ? "" : "none";
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

  svg.addEventListener("pointermove", (event) => {
    const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
    const distance = (point) => Math.hypot(point.x - at.x, point.y - at.y);
    const visible = series.filter((one) => one.isShown);
    const points = visible.flatMap((one) => one.points);
    const here = points.reduce((best, point) => (best && distance(best) <= distance(point) ? best : point), null);
    if (!here || distance(here) > 40) return hide();
    // Shows the values of the other series at the same x as well.
    const lines = visible.flatMap((one) => one.points.filter((point) => point.x === here.x).slice(0, 3));
    const line = (point) => Object.assign(document.createElement("div"), { textContent: point.text });
    tip.replaceChildren(...lines.map(line));
    tip.hidden = false;
    const frame = figure.getBoundingClientRect();
    const isRight = event.clientX - frame.left > frame.width / 2;
    tip.style.top = `${event.clientY - frame.top + 14}px`;
    tip.style.left = isRight ? "" : `${event.clientX - frame.left + 14}px`;
    tip.style.right = isRight ? `${frame.right - event.clientX + 14}px` : "";
    cursor.setAttribute("cx", here.x);
    cursor.setAttribute("cy", here.y);
    cursor.style.display = "";
  });
  svg.addEventListener("pointerleave", hide);
}
