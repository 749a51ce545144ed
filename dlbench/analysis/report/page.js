for (const data of document.querySelectorAll("script[data-plot]")) {
  const place = document.getElementById(data.dataset.plot);
  const still = [...place.children]; // one for wide pages, and mostly one for narrow ones
  vegaEmbed(place, JSON.parse(data.textContent), {
    mode: "vega-lite", renderer: "svg", ast: true, actions: false, defaultStyle: false, tooltip: { disableDefaultStyle: true },
  }).then(() => {
    // what is drawn has one name, which its place has
    for (const part of place.querySelectorAll("[role]")) part.removeAttribute("role");
  }, () => place.replaceChildren(...still));
}
