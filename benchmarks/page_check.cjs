// What benchmarks/page_check.py runs: see there.
const fs = require("fs");
const path = require("path");
const { chromium } = require("playwright-core");
const axe = fs.readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
const settings = JSON.parse(process.argv[2]);
const RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"];

async function opened(browser, page, options) {
  const context = await browser.newContext(options);
  const tab = await context.newPage();
  const said = [];
  tab.on("console", (message) => said.push(`${message.type()}: ${message.text()}`));
  tab.on("pageerror", (error) => said.push(`error: ${error.message}`));
  tab.on("request", (request) => request.url() !== page && said.push(`request: ${request.url().slice(0, 100)}`));
  await tab.goto(page);
  await tab.waitForTimeout(1500); // scripts of an interactive page draw meanwhile
  return { context, tab, said };
}

/** What is wrong with the plots that show: ticks without a number, and marks that look alike although their tables tell them apart. */
function faultsOfPlots() {
  const faults = [];
  for (const figure of document.querySelectorAll("figure")) {
    const title = figure.querySelector("h3")?.textContent;
    const drawing = [...figure.querySelectorAll("svg")].find((each) => each.getBoundingClientRect().width);
    if (!drawing) continue;
    const isTick = (line) => ["0 5", "-5 0"].includes(`${line.getAttribute("x2")} ${line.getAttribute("y2")}`);
    for (const ticks of drawing.querySelectorAll("g:has(> line)")) {
      const count = [...ticks.children].filter(isTick).length;
      const named = [...(ticks.nextElementSibling?.children ?? [])].filter((each) => each.textContent.trim() && each.getAttribute("opacity") !== "0").length;
      if (count && named < count) faults.push(`${count - named} of ${count} ticks have no number: ${title}`);
    }
    const table = figure.querySelector("table") ?? figure.parentElement.querySelector("table");
    if (!table || figure.textContent.includes("Not drawn:")) continue;
    const isZero = (cell) => cell.classList.contains("n") && /^0(\D|$)/.test(cell.textContent);
    const rows = [...table.querySelectorAll("tbody tr")].filter((row) => ![...row.cells].some(isZero));
    const words = rows.map((row) => [...row.cells].filter((cell) => !cell.classList.contains("n")).map((cell) => cell.textContent).join("|"));
    const told = new Set(words);
    const headings = [...table.querySelectorAll("th")].filter((each) => !/interval|band/.test(each.textContent));
    const isOfRounds = headings.some((each) => each.textContent === "what"); // whose dots are many of one kind
    if (headings.filter((each) => each.classList.contains("n")).length === 1 && !isOfRounds && told.size < words.length) {
      faults.push(`${words.length} marks have ${told.size} names: ${title}`);
    }
    const isLegend = (mark) => mark.parentElement.children.length === 1 && mark.parentElement.nextElementSibling?.children.length === 1;
    const marks = [...drawing.querySelectorAll("path")].filter((each) => !isLegend(each));
    const colour = (mark) => ["fill", "stroke", "stroke-dasharray"].map((name) => mark.getAttribute(name)).join();
    const lines = marks.filter((each) => /^M[^Z]*L/.test(each.getAttribute("d")) && each.getAttribute("stroke")?.includes("--s"));
    const row = (mark) => Math.round(mark.getBoundingClientRect().top + mark.getBoundingClientRect().height / 2);
    const shape = (mark) => (mark.hasAttribute("transform") ? mark.getAttribute("d") : "bar");
    const looks = new Set(lines.length ? lines.map(colour) : marks.filter((each) => each.hasAttribute("fill")).map((each) => [row(each), colour(each), shape(each)].join()));
    if (looks.size < told.size) faults.push(`${told.size} marks look like ${looks.size}: ${title}`);
  }
  return faults;
}

(async () => {
  const browser = await chromium.launch({ executablePath: settings.browser, args: ["--no-sandbox", "--disable-gpu"] });
  let failed = false;
  for (const page of settings.pages) {
    for (const width of [360, 1400]) {
      for (const colorScheme of ["light", "dark"]) {
        const view = { viewport: { width, height: 900 }, colorScheme };
        const plain = await opened(browser, page, view);
        const wider = await plain.tab.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        if (settings.pictures) {
          const name = `${path.basename(page, ".html")}-${width}-${colorScheme}.png`;
          await plain.tab.screenshot({ path: path.join(settings.pictures, name), fullPage: true });
        }
        await plain.context.close();
        // axe has to be put into the page, which its policy forbids.
        const open = await opened(browser, page, { ...view, bypassCSP: true });
        await open.tab.evaluate(() => document.querySelectorAll("details").forEach((each) => (each.open = true)));
        await open.tab.evaluate(axe);
        const ofPlots = await open.tab.evaluate(faultsOfPlots);
        const found = await open.tab.evaluate((rules) => axe.run(document, { runOnly: rules }), RULES);
        await open.context.close();
        const faults = [...plain.said, ...ofPlots, ...(wider > 0 ? [`${wider} pixels wider than the window`] : [])];
        faults.push(...found.violations.map((each) => `${each.id}: ${each.help}, such as ${each.nodes[0].html.slice(0, 200)}`));
        failed = failed || faults.length > 0;
        console.log(`${path.basename(page)}, ${width} pixels, ${colorScheme}: ${faults.length ? faults.join("\n  ") : "nothing found"}`);
      }
    }
  }
  await browser.close();
  process.exit(failed ? 1 : 0);
})();
