// Draws every plot from the specifications in the page, and switches between the themes.
(function () {
  "use strict";
  var root = document.documentElement;
  var themes = ["system", "light", "dark"];
  var button = document.getElementById("theme");

  function stored() {
    try { return localStorage.getItem("kvspill-theme"); } catch (error) { return null; }
  }
  function use(theme) {
    if (theme === "system") { delete root.dataset.theme; } else { root.dataset.theme = theme; }
    button.textContent = "Theme: " + theme;
    try { localStorage.setItem("kvspill-theme", theme); } catch (error) { root.dataset.themeKept = "no"; }
  }
  button.addEventListener("click", function () {
    var now = root.dataset.theme || "system";
    use(themes[(themes.indexOf(now) + 1) % themes.length]);
  });
  var kept = stored();
  if (themes.indexOf(kept) > 0) { use(kept); }

  var page = JSON.parse(document.getElementById("specs").textContent);
  var options = {
    mode: "vega", renderer: "svg", actions: false, ast: true, defaultStyle: false,
    tooltip: { disableDefaultStyle: true, theme: "page" }
  };
  // What is in sight is drawn at once; the rest one plot at a time when the browser has nothing else to
  // do, sooner where a reader scrolls to it, and at once where the page is printed.
  var waiting = Array.prototype.slice.call(document.querySelectorAll(".plot"));
  var started = new Set();
  var count = waiting.length;
  var drawn = 0;
  var settled = 0;
  function note() {
    settled += 1;
    if (settled < count) { return; }
    root.dataset.drawn = String(drawn);
    root.dataset.readyMs = String(Math.round(performance.now()));
  }
  function draw(plot) {
    if (started.has(plot)) { return Promise.resolve(); }
    started.add(plot);
    return vegaEmbed(plot, page[plot.dataset.figure], options).then(
      function () { drawn += 1; note(); },
      function (error) { console.error(plot.dataset.figure, error); note(); }
    );
  }
  function near(plot) {
    var box = plot.getBoundingClientRect();
    return box.top < 1.5 * window.innerHeight && box.bottom > -0.5 * window.innerHeight;
  }
  function idle(work) {
    if (window.requestIdleCallback) { requestIdleCallback(work, { timeout: 200 }); } else { setTimeout(work, 0); }
  }
  function next() {
    var plot = waiting.shift();
    if (plot) { draw(plot).then(function () { idle(next); }); }
  }
  // Paper is white: a print is light, whatever the screen is.
  var shown;
  window.addEventListener("beforeprint", function () { shown = root.dataset.theme; root.dataset.theme = "light"; });
  window.addEventListener("afterprint", function () {
    if (shown) { root.dataset.theme = shown; } else { delete root.dataset.theme; }
  });
  // A badge leads into a fold that may be closed.
  function unfold() {
    var target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    var fold = target && target.closest("details");
    if (fold) { fold.open = true; target.scrollIntoView(); }
  }
  window.addEventListener("hashchange", unfold);
  unfold();
  window.addEventListener("beforeprint", function () { waiting.splice(0).forEach(draw); });
  window.addEventListener("scroll", function () { waiting.filter(near).forEach(draw); }, { passive: true });
  if (!count) { settled = -1; note(); }
  Promise.all(waiting.filter(near).map(draw)).then(function () {
    root.dataset.openMs = String(Math.round(performance.now()));
    idle(next);
  });
})();
