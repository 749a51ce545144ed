for (const data of document.querySelectorAll("script[data-plot]")) {
  const place = document.getElementById(data.dataset.plot);
  const drawings = [...place.children]; // one for wide pages, and mostly one for narrow ones
  const [still] = drawings;
  vegaEmbed(place, JSON.parse(data.textContent), {
    mode: "vega-lite", renderer: "svg", ast: true, actions: false, defaultStyle: false, tooltip: { disableDefaultStyle: true },
  }).then(() => {
    const drawn = place.querySelector("svg");
    for (const part of drawn.querySelectorAll("[role]")) part.removeAttribute("role");
    drawn.setAttribute("role", "img");
    drawn.setAttribute("aria-labelledby", still.getAttribute("aria-labelledby"));
    drawn.prepend(...still.querySelectorAll(":scope > title, :scope > desc"));
  }, () => place.replaceChildren(...drawings));
}
