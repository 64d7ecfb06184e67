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
  // What is in sight comes first; the rest follows, one plot at a time, so that the page stays responsive.
  var plots = Array.prototype.slice.call(document.querySelectorAll(".plot"));
  var drawn = 0;
  function draw(plot) {
    return vegaEmbed(plot, page[plot.dataset.figure], options).then(
      function () { drawn += 1; },
      function (error) { console.error(plot.dataset.figure, error); }
    );
  }
  function next() {
    var plot = plots.shift();
    if (plot) { draw(plot).then(function () { setTimeout(next, 0); }); return; }
    root.dataset.drawn = String(drawn);
    root.dataset.readyMs = String(Math.round(performance.now()));
  }
  next();
})();
