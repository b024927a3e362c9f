"use strict";
(() => {
  const figures = JSON.parse(document.getElementById("figures").textContent);
  // Plotly's bar has a button that sends a chart to its maker's server: measurements stay here.
  const config = {
    displaylogo: false,
    responsive: true,
    plotlyServerURL: "",
    modeBarButtonsToRemove: ["sendChartToCloud", "lasso2d", "select2d"],
  };

  // Colours are the page's own, so that a figure is readable on light and on dark.
  const themed = (layout) => {
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    const axis = { gridcolor: colour("--line"), zerolinecolor: colour("--line"), linecolor: colour("--line"), exponentformat: "none" };
    const result = {
      ...layout,
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { color: colour("--text"), family: getComputedStyle(document.body).fontFamily, size: 12 },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: colour("--dim"), activecolor: colour("--text") },
    };
    for (const key of Object.keys(layout)) {
      if (/^[xy]axis\d*$/.test(key)) result[key] = { ...axis, ...layout[key] };
    }
    return result;
  };

  const draw = () => {
    for (const place of document.querySelectorAll("[data-figure]")) {
      const { data, layout } = figures[place.dataset.figure];
      Plotly.react(place, data, themed(layout), config);
    }
  };
  draw();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
})();
