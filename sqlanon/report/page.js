"use strict";
// Draws the charts. They ask for nothing from anywhere: what would load something is refused here, and by the page's
// security policy; expressions are interpreted, so that nothing is ever evaluated as a script.
(async () => {
  const refuse = async () => { throw new Error("a report loads nothing"); };
  const loader = { load: refuse, sanitize: refuse, http: refuse, file: refuse };
  const specs = JSON.parse(document.getElementById("charts").textContent);
  for (const [name, spec] of Object.entries(specs)) {
    await vegaEmbed(document.getElementById("plot-" + name), spec, {
      mode: "vega-lite",
      renderer: "svg",
      ast: true,
      loader,
      defaultStyle: false,
      tooltip: { disableDefaultStyle: true },
      downloadFileName: "sqlanon-" + name,
      actions: { export: { svg: true, png: true }, source: false, compiled: false, editor: false },
    });
  }
  document.documentElement.dataset.charts = "drawn";
})();
