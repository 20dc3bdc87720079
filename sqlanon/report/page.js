"use strict";
// The frontier: what each generalization leaves at any k follows from the sizes of its classes, which are on the page.
(() => {
  const place = document.getElementById("explorer");
  if (!place) return;
  const found = JSON.parse(place.textContent);
  const at = id => document.getElementById("explore-" + id);
  const whole = number => number.toLocaleString("en-US");
  const percent = share =>
    share > 0 && share < 0.001 ? "under 0.1 %" : (100 * share).toLocaleString("en-US", { maximumSignificantDigits: 3 }) + " %";
  const sliders = found.attributes.map((_, i) => at("level-" + i));

  // What is left of a generalization: all of it are whole numbers but the losses.
  const leaves = (levels, k) => {
    const [above, never, sizes] = found.nodes[levels.join(",")];
    const lost = never.slice();
    let [classes, , smallest] = above;
    for (const [size, count, ...inner] of sizes) {
      if (size < k) {
        lost[0] += size * count;
        inner.forEach((one, j) => { lost[j + 1] += one; });
      } else {
        classes += count;
        smallest = smallest ? Math.min(smallest, size) : size;
      }
    }
    const suppressed = lost[0];
    let between = 0;
    const losses = found.attributes.map((one, i) => {
      const span = one.leaves - 1, level = levels[i];
      const inner = level >= one.lowest_labelled && level < one.height ? lost[++between] : 0;
      if (!span) return suppressed / found.rows;
      const gone = level === one.height ? (suppressed - one.unknown) * span : inner;
      return ((one.sums[level] - gone) / span + suppressed) / found.rows;
    });
    const weight = found.weights.reduce((sum, one) => sum + one, 0);
    const loss = losses.reduce((sum, one, i) => sum + one * found.weights[i], 0) / weight;
    return { levels, suppressed, released: found.rows - suppressed, classes, smallest, losses, loss };
  };
  const allowed = parts => (parts * found.rows - (parts * found.rows) % found.scale) / found.scale;
  const holds = (one, parts) => one.released > 0 && one.suppressed <= allowed(parts);

  // As `anonymize` chooses: the least loss; of equals the fewest steps, then the first in the policy's order.
  const best = (k, parts) => {
    let chosen = null;
    const steps = one => one.levels.reduce((sum, level) => sum + level, 0);
    const before = (one, other) => {
      if (Math.abs(one.loss - other.loss) > 1e-12 * Math.max(one.loss, other.loss)) return one.loss < other.loss;
      if (steps(one) !== steps(other)) return steps(one) < steps(other);
      const i = one.levels.findIndex((level, j) => level !== other.levels[j]);
      return i >= 0 && one.levels[i] < other.levels[i];
    };
    for (const key of Object.keys(found.nodes)) {
      const one = leaves(key.split(",").map(Number), k);
      if (holds(one, parts) && (!chosen || before(one, chosen))) chosen = one;
    }
    return chosen;
  };

  const asked = () => ({
    k: Number(at("k").value),
    parts: Number(at("limit").value),
    levels: found.attributes.map((one, i) => one.levels[sliders[i] ? Number(sliders[i].value) : 0]),
  });
  const limitText = parts => 100 * parts / found.scale;
  const lines = (k, parts, levels) => [
    "[privacy]", `k = ${k}`, "", "[search]", `suppression_limit = ${parts / found.scale}`, "", "[attributes]",
    ...found.attributes.map((one, i) => `${one.entry}, min_level = ${levels[i]}, max_level = ${levels[i]} }`),
  ].join("\n") + "\n";
  const cell = (tag, text, name) => {
    const made = document.createElement(tag);
    if (tag === "th") made.scope = "row";
    if (name) made.className = name;
    made.textContent = text;
    return made;
  };

  const show = () => {
    const { k, parts, levels } = asked();
    const one = leaves(levels, k);
    at("k-shown").textContent = String(k);
    at("limit-shown").textContent = limitText(parts) + " %";
    at("limit").setAttribute("aria-valuetext", limitText(parts) + " %");
    const body = at("columns");
    body.textContent = "";
    found.attributes.forEach((attribute, i) => {
      const level = levels[i], reads = attribute.labels[level];
      if (sliders[i]) {
        sliders[i].setAttribute("aria-valuetext", `level ${level}, reads ${reads}`);
        at("level-" + i + "-shown").textContent = `level ${level}: ${reads}`;
      }
      const row = document.createElement("tr"), bar = document.createElement("meter"), last = cell("td", "", "number");
      bar.min = 0; bar.max = 1; bar.value = one.losses[i];
      bar.setAttribute("aria-label", "loss of " + attribute.name);
      last.dataset.loss = one.losses[i];
      last.append(bar, " " + percent(one.losses[i]));
      row.append(cell("th", attribute.name), cell("td", `${level} of ${attribute.height}`), cell("td", reads),
        cell("td", whole(attribute.values[level]), "number"), last);
      body.append(row);
    });
    const fits = holds(one, parts);
    const risk = one.classes ? `The greatest risk of being found is 1 in ${whole(one.smallest)}, the mean ` +
      `${percent(one.classes / one.released)}.` : "Nothing is left.";
    at("summary").textContent = `${whole(one.released)} of ${whole(found.rows)} rows are left, in ${whole(one.classes)} ` +
      `groups. ${risk} The loss is ${one.loss.toLocaleString("en-US", { maximumSignificantDigits: 4 })}.`;
    at("verdict").textContent = fits
      ? `Allowed: ${whole(one.suppressed)} rows are left out; the limit is ${whole(allowed(parts))}.`
      : `Not allowed: ${whole(one.suppressed)} rows would be left out; the limit is ${whole(allowed(parts))}.`;
    at("verdict").className = fits ? "holds" : "fails";
    Object.assign(at("summary").dataset, {
      suppressed: one.suppressed, classes: one.classes, smallest: one.smallest, loss: one.loss, fits,
    });
    at("lines").textContent = lines(k, parts, levels);
    at("copied").textContent = "";
  };

  const move = levels => levels.forEach((level, i) => {
    if (sliders[i]) sliders[i].value = found.attributes[i].levels.indexOf(level);
  });
  at("form").addEventListener("input", show);
  at("form").addEventListener("submit", event => event.preventDefault());
  at("reset").addEventListener("click", () => {
    at("k").value = found.k;
    at("limit").value = found.limit;
    move(found.attributes.map(one => one.chosen));
    show();
  });
  if (at("best")) at("best").addEventListener("click", () => {
    const { k, parts } = asked(), chosen = best(k, parts);
    if (chosen) move(chosen.levels);
    show();
    if (!chosen) at("verdict").textContent = "No generalization meets these limits.";
  });
  at("copy").addEventListener("click", async () => {
    let done = true;
    try {
      await navigator.clipboard.writeText(at("lines").textContent);
    } catch {
      getSelection().selectAllChildren(at("lines"));
      done = document.execCommand("copy");
    }
    at("copied").textContent = done ? "Copied." : "Select the lines and copy them.";
  });
  show();
})();
// The section that is read is marked in the list of sections.
(() => {
  const links = new Map([...document.querySelectorAll("nav a")].map(one => [one.hash.slice(1), one]));
  const seen = new IntersectionObserver(entries => {
    for (const entry of entries) if (entry.isIntersecting) {
      for (const link of links.values()) link.removeAttribute("aria-current");
      links.get(entry.target.id)?.setAttribute("aria-current", "true");
    }
  }, { rootMargin: "0px 0px -80% 0px" });
  for (const section of document.querySelectorAll("main section[id]")) seen.observe(section);
})();
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
  // What scrolls sideways can be reached with the keyboard.
  for (const part of document.querySelectorAll(".scroll, .plot, pre")) {
    if (part.scrollWidth > part.clientWidth) part.tabIndex = 0;
  }
  document.documentElement.dataset.charts = "drawn";
})();
