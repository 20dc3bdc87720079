"use strict";
// The explorer: the class sizes on the page determine the result of each generalization at any k.
(() => {
  const source = document.getElementById("explorer");
  if (!source) return;
  const data = JSON.parse(source.textContent);
  const element = id => document.getElementById("explore-" + id);
  const whole = number => number.toLocaleString("en-US");
  const percent = share =>
    share > 0 && share < 0.001 ? "under 0.1 %" : (100 * share).toLocaleString("en-US", { maximumSignificantDigits: 3 }) + " %";
  const sliders = data.attributes.map((_, i) => element("level-" + i));

  // The result of a generalization at k: integers, except for the losses.
  const evaluate = (levels, k) => {
    const [above, never, sizes] = data.nodes[levels.join(",")];
    const lost = never.slice();
    let [classes, , smallest] = above;
    for (const [size, count, ...inner] of sizes) {
      if (size < k) {
        lost[0] += size * count;
        inner.forEach((leaves, j) => { lost[j + 1] += leaves; });
      } else {
        classes += count;
        smallest = smallest ? Math.min(smallest, size) : size;
      }
    }
    const suppressed = lost[0];
    let between = 0;
    const losses = data.attributes.map((attribute, i) => {
      const span = attribute.leaves - 1, level = levels[i];
      const inner = level >= attribute.lowest_labelled && level < attribute.height ? lost[++between] : 0;
      if (!span) return suppressed / data.rows;
      const gone = level === attribute.height ? (suppressed - attribute.unknown) * span : inner;
      return ((attribute.sums[level] - gone) / span + suppressed) / data.rows;
    });
    const total = data.weights.reduce((sum, weight) => sum + weight, 0);
    const loss = losses.reduce((sum, part, i) => sum + part * data.weights[i], 0) / total;
    return { levels, suppressed, released: data.rows - suppressed, classes, smallest, losses, loss };
  };
  const allowed = parts => (parts * data.rows - (parts * data.rows) % data.scale) / data.scale;
  const holds = (result, parts) => result.released > 0 && result.suppressed <= allowed(parts);

  // The choice of `anonymize`: the least loss, then the fewest steps, then the first in the policy's order.
  const best = (k, parts) => {
    let chosen = null;
    const steps = result => result.levels.reduce((sum, level) => sum + level, 0);
    const isBetter = (a, b) => {
      if (Math.abs(a.loss - b.loss) > 1e-12 * Math.max(a.loss, b.loss)) return a.loss < b.loss;
      if (steps(a) !== steps(b)) return steps(a) < steps(b);
      const i = a.levels.findIndex((level, j) => level !== b.levels[j]);
      return i >= 0 && a.levels[i] < b.levels[i];
    };
    for (const key of Object.keys(data.nodes)) {
      const result = evaluate(key.split(",").map(Number), k);
      if (holds(result, parts) && (!chosen || isBetter(result, chosen))) chosen = result;
    }
    return chosen;
  };

  const readSettings = () => ({
    k: Number(element("k").value),
    parts: Number(element("limit").value),
    levels: data.attributes.map((attribute, i) => attribute.levels[sliders[i] ? Number(sliders[i].value) : 0]),
  });
  const limitText = parts => 100 * parts / data.scale;
  const lines = (k, parts, levels) => [
    "[privacy]", `k = ${k}`, "", "[search]", `suppression_limit = ${parts / data.scale}`, "", "[attributes]",
    ...data.attributes.map((attribute, i) => `${attribute.entry}, min_level = ${levels[i]}, max_level = ${levels[i]} }`),
  ].join("\n") + "\n";
  const cell = (tag, text, name) => {
    const node = document.createElement(tag);
    if (tag === "th") node.scope = "row";
    if (name) node.className = name;
    node.textContent = text;
    return node;
  };

  const show = () => {
    const { k, parts, levels } = readSettings();
    const result = evaluate(levels, k);
    element("k-shown").textContent = String(k);
    element("limit-shown").textContent = limitText(parts) + " %";
    element("limit").setAttribute("aria-valuetext", limitText(parts) + " %");
    const body = element("columns");
    body.textContent = "";
    data.attributes.forEach((attribute, i) => {
      const level = levels[i], reads = attribute.labels[level];
      if (sliders[i]) {
        sliders[i].setAttribute("aria-valuetext", `level ${level}, reads ${reads}`);
        element("level-" + i + "-shown").textContent = `level ${level}: ${reads}`;
      }
      const row = document.createElement("tr"), bar = document.createElement("meter"), last = cell("td", "", "number");
      bar.min = 0; bar.max = 1; bar.value = result.losses[i];
      bar.setAttribute("aria-label", "loss of " + attribute.name);
      last.dataset.loss = result.losses[i];
      last.append(bar, " " + percent(result.losses[i]));
      row.append(cell("th", attribute.name), cell("td", `${level} of ${attribute.height}`), cell("td", reads),
        cell("td", whole(attribute.values[level]), "number"), last);
      body.append(row);
    });
    const fits = holds(result, parts);
    const risk = result.classes ? `The greatest risk of being data is 1 in ${whole(result.smallest)}, the mean ` +
      `${percent(result.classes / result.released)}.` : "Nothing is left.";
    element("summary").textContent = `${whole(result.released)} of ${whole(data.rows)} rows are left, in ${whole(result.classes)} ` +
      `groups. ${risk} The loss is ${result.loss.toLocaleString("en-US", { maximumSignificantDigits: 4 })}.`;
    element("verdict").textContent = fits
      ? `Allowed: ${whole(result.suppressed)} rows are left out; the limit is ${whole(allowed(parts))}.`
      : `Not allowed: ${whole(result.suppressed)} rows would be left out; the limit is ${whole(allowed(parts))}.`;
    element("verdict").className = fits ? "holds" : "fails";
    Object.assign(element("summary").dataset, {
      suppressed: result.suppressed, classes: result.classes, smallest: result.smallest, loss: result.loss, fits,
    });
    element("lines").textContent = lines(k, parts, levels);
    element("copied").textContent = "";
  };

  const move = levels => levels.forEach((level, i) => {
    if (sliders[i]) sliders[i].value = data.attributes[i].levels.indexOf(level);
  });
  element("form").addEventListener("input", show);
  element("form").addEventListener("submit", event => event.preventDefault());
  element("reset").addEventListener("click", () => {
    element("k").value = data.k;
    element("limit").value = data.limit;
    move(data.attributes.map(attribute => attribute.chosen));
    show();
  });
  if (element("best")) element("best").addEventListener("click", () => {
    const { k, parts } = readSettings(), chosen = best(k, parts);
    if (chosen) move(chosen.levels);
    show();
    if (!chosen) element("verdict").textContent = "No generalization meets these limits.";
  });
  element("copy").addEventListener("click", async () => {
    let done = true;
    try {
      await navigator.clipboard.writeText(element("lines").textContent);
    } catch {
      getSelection().selectAllChildren(element("lines"));
      done = document.execCommand("copy");
    }
    element("copied").textContent = done ? "Copied." : "Select the lines and copy them.";
  });
  show();
})();
// Mark the current section in the list of sections.
(() => {
  const links = new Map([...document.querySelectorAll("nav a")].map(link => [link.hash.slice(1), link]));
  const seen = new IntersectionObserver(entries => {
    for (const entry of entries) if (entry.isIntersecting) {
      for (const link of links.values()) link.removeAttribute("aria-current");
      links.get(entry.target.id)?.setAttribute("aria-current", "true");
    }
  }, { rootMargin: "0px 0px -80% 0px" });
  for (const section of document.querySelectorAll("main section[id]")) seen.observe(section);
})();
// Draw the charts. This loader and the page's security policy refuse to load anything, and expressions are interpreted,
// so nothing is evaluated as a script.
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
  // Let the keyboard reach parts that scroll sideways.
  for (const part of document.querySelectorAll(".scroll, .plot, pre")) {
    if (part.scrollWidth > part.clientWidth) part.tabIndex = 0;
  }
  document.documentElement.dataset.charts = "drawn";
})();
