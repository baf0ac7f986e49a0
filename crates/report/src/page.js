"use strict";
(() => {
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const drawn = new Set();

  const theme = (layout) => {
    const axis = { gridcolor: colour("--line"), linecolor: colour("--line"), zerolinecolor: colour("--line") };
    Object.assign(layout, {
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: "system-ui, sans-serif", size: 13, color: colour("--text") },
      modebar: { orientation: "v", bgcolor: "rgba(0,0,0,0)", color: colour("--muted"), activecolor: colour("--accent") },
      hoverlabel: {
        bgcolor: colour("--card"),
        bordercolor: colour("--line"),
        font: { color: colour("--text") },
      },
    });
    for (const name of ["xaxis", "yaxis"]) Object.assign(layout[name], axis);
    return layout;
  };

  const draw = (figure) => {
    if (drawn.has(figure)) return;
    drawn.add(figure);
    const { data, layout } = JSON.parse(figure.querySelector("script").textContent);
    Object.assign(layout, {
      autosize: true,
      margin: { l: 60, r: 40, t: 44, b: 52 },
      legend: { orientation: "h", x: 0, y: 1, yanchor: "bottom", bgcolor: "rgba(0,0,0,0)" },
    });
    layout.xaxis.title = { ...layout.xaxis.title, standoff: 8 };
    Plotly.newPlot(figure.querySelector("div"), data, theme(layout), {
      responsive: true,
      displaylogo: false,
      scrollZoom: false,
      modeBarButtonsToRemove: ["lasso2d", "select2d", "autoScale2d", "zoomIn2d", "zoomOut2d"],
    });
  };

  const figures = [...document.querySelectorAll("figure.plot")];
  const visible = new IntersectionObserver(
    (entries) => entries.filter((entry) => entry.isIntersecting).forEach((entry) => draw(entry.target)),
    { rootMargin: "600px" },
  );
  figures.forEach((figure) => visible.observe(figure));
  window.addEventListener("beforeprint", () => figures.forEach(draw));
  dark.addEventListener("change", () => {
    for (const figure of drawn) {
      const plot = figure.querySelector("div");
      Plotly.relayout(plot, theme(plot.layout));
    }
  });
})();
