// What benchmarks/page_check.py runs: see there.
const fs = require("fs");
const path = require("path");
const { chromium } = require("playwright-core");
const axe = fs.readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
const settings = JSON.parse(process.argv[2]);
const RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"];
// The first screen, and what of each line of the answers has to be on it.
const SCREENS = [
  { width: 360, height: 780, shown: ".tiles strong" },
  { width: 768, height: 1024, shown: ".tiles li > *" },
  { width: 1400, height: 900, shown: ".tiles li > *" },
];

async function opened(browser, page, options) {
  const context = await browser.newContext(options);
  const tab = await context.newPage();
  const said = [];
  tab.on("console", (message) => said.push(`${message.type()}: ${message.text()}`));
  tab.on("pageerror", (error) => said.push(`error: ${error.message}`));
  tab.on("request", (request) => request.url() !== page && said.push(`request: ${request.url().slice(0, 100)}`));
  await tab.goto(page);
  const scripts = await tab.evaluate(() => document.scripts.length);
  if (scripts) said.push(`${scripts} scripts`);
  return { context, tab, said };
}

/** What is wrong with the plots that show: words on words, axes without numbers, and marks that look alike although their tables tell them apart. */
function faultsOfPlots() {
  const faults = [];
  for (const figure of document.querySelectorAll("figure")) {
    const title = figure.querySelector("h3")?.textContent;
    const drawing = [...figure.querySelectorAll("svg")].find((each) => each.getBoundingClientRect().width);
    if (!drawing) continue;
    const texts = [...drawing.querySelectorAll("text")].filter((each) => each.textContent.trim() && each.getAttribute("opacity") !== "0");
    const places = texts.map((each) => each.getBoundingClientRect());
    const room = 2; // pixels that letters stay apart from the edge of their box
    const covers = (one, other) =>
      Math.min(one.right, other.right) - Math.max(one.left, other.left) > room && Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top) > room;
    const covered = texts.filter((_, at) => places.some((other, before) => before < at && covers(places[at], other)));
    if (covered.length) faults.push(`${covered.length} of ${texts.length} words lie on others, such as ${covered[0].textContent}: ${title}`);
    if (!texts.some((each) => /\d/.test(each.textContent))) faults.push(`no axis names a number: ${title}`);
    const table = figure.querySelector("table") ?? figure.parentElement.querySelector("table");
    if (!table || figure.textContent.includes("Not drawn:")) continue;
    const isZero = (cell) => cell.classList.contains("n") && /^0(\D|$)/.test(cell.textContent);
    const rows = [...table.querySelectorAll("tbody tr")].filter((row) => ![...row.cells].some(isZero));
    const words = rows.map((row) => [...row.cells].filter((cell) => !cell.classList.contains("n")).map((cell) => cell.textContent).join("|"));
    const told = new Set(words);
    const headings = [...table.querySelectorAll("th")].filter((each) => !/interval|band/.test(each.textContent));
    const isOfRounds = headings.some((each) => each.textContent === "time over the median"); // whose dots are many of one kind
    if (headings.filter((each) => each.classList.contains("n")).length === 1 && !isOfRounds && told.size < words.length) {
      faults.push(`${words.length} marks have ${told.size} names: ${title}`);
    }
    const isLegend = (mark) => mark.parentElement.children.length === 1 && mark.parentElement.nextElementSibling?.children.length === 1;
    const marks = [...drawing.querySelectorAll("path")].filter((each) => !isLegend(each));
    const colour = (mark) => ["fill", "stroke", "stroke-dasharray"].map((name) => mark.getAttribute(name)).join();
    const lines = marks.filter((each) => /^M[^Z]*L/.test(each.getAttribute("d")) && each.getAttribute("stroke")?.includes("--s"));
    const row = (mark) => Math.round(mark.getBoundingClientRect().top + mark.getBoundingClientRect().height / 2);
    const shape = (mark) => (mark.hasAttribute("transform") ? mark.getAttribute("d") : "bar");
    const filled = marks.filter((each) => each.hasAttribute("fill"));
    const look = (mark) => [lines.length ? "" : row(mark), colour(mark), shape(mark)].join(); // dots of a line are told apart wherever they are
    for (const [what, looks] of [["lines", lines.map(colour)], ["marks", filled.map(look)]]) {
      const different = new Set(looks).size;
      if (different && different < told.size) faults.push(`${told.size} ${what} look like ${different}: ${title}`);
    }
  }
  return faults;
}

/** What is wrong with the page as it stands, told by itself. */
function faultsOfLayout({ shown, most, wide }) {
  const faults = [];
  const wider = document.documentElement.scrollWidth - innerWidth;
  if (wider > 0) faults.push(`${wider} pixels wider than the window`);
  const tiles = [...document.querySelectorAll(".tiles > li")];
  for (const part of document.querySelectorAll(shown)) {
    const { top, bottom, height } = part.getBoundingClientRect();
    if (!height || top < 0 || bottom > innerHeight) faults.push(`not on the first screen: ${part.textContent.trim()}`);
  }
  if (tiles.length && wide && document.documentElement.scrollHeight > most) {
    faults.push(`${document.documentElement.scrollHeight} pixels high, more than ${most}`);
  }
  for (const section of document.querySelectorAll(".answer.drawn")) {
    const [answer, plot] = [".headline", ":scope > figure"].map((each) => section.querySelector(each).getBoundingClientRect());
    if (wide && plot.top - answer.bottom > 50) faults.push(`the plot of ${section.id} is not right below its answer`);
  }
  const copy = document.documentElement.cloneNode(true);
  copy.querySelectorAll("style").forEach((each) => each.remove());
  const folder = copy.outerHTML.match(/(?:file:\/\/|(?<![\w./~<]))\/(?!(?:proc|sys|dev|etc)\/)(?:[\w.~-]+\/)+[\w.~-]+/);
  if (folder) faults.push(`an absolute path: ${folder[0]}`);
  return faults;
}

(async () => {
  const browser = await chromium.launch({ executablePath: settings.browser, args: ["--no-sandbox", "--disable-gpu"] });
  let failed = false;
  for (const [page, most] of Object.entries(settings.pages)) {
    for (const { shown, ...viewport } of SCREENS) {
      for (const colorScheme of ["light", "dark"]) {
        const view = { viewport, colorScheme };
        const plain = await opened(browser, page, view);
        const faults = [...plain.said, ...(await plain.tab.evaluate(faultsOfLayout, { shown, most, wide: viewport.width === 1400 }))];
        const height = await plain.tab.evaluate(() => document.documentElement.scrollHeight);
        if (settings.pictures) {
          const name = `${path.basename(page, ".html")}-${viewport.width}-${colorScheme}.png`;
          await plain.tab.screenshot({ path: path.join(settings.pictures, name), fullPage: true });
        }
        await plain.context.close();
        // axe has to be put into the page, which its policy forbids.
        const open = await opened(browser, page, { ...view, bypassCSP: true });
        await open.tab.evaluate(() => document.querySelectorAll("details").forEach((each) => (each.open = true)));
        const wider = await open.tab.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        if (wider > 0) faults.push(`unfolded ${wider} pixels wider than the window`);
        await open.tab.evaluate(axe);
        faults.push(...(await open.tab.evaluate(faultsOfPlots)));
        const found = await open.tab.evaluate((rules) => axe.run(document, { runOnly: rules }), RULES);
        await open.context.close();
        faults.push(...found.violations.map((each) => `${each.id}: ${each.help}, such as ${each.nodes[0].html.slice(0, 200)}`));
        failed = failed || faults.length > 0;
        const said = faults.length ? faults.join("\n  ") : "nothing found";
        console.log(`${path.basename(page)}, ${viewport.width} pixels, ${colorScheme}, ${height} high: ${said}`);
      }
    }
  }
  await browser.close();
  process.exit(failed ? 1 : 0);
})();
