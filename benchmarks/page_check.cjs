// What benchmarks/page_check.py runs: see there.
const fs = require("fs");
const path = require("path");
const { chromium } = require("playwright-core");
const axe = fs.readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
const settings = JSON.parse(process.argv[2]);
const RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"];
// The first screen, and what of each of the ten lines has to be on it.
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
  if (await tab.evaluate(() => document.scripts.length)) await tab.waitForTimeout(1500); // an interactive page draws meanwhile
  return { context, tab, said };
}

/** What is wrong with the page as it stands, told by itself. */
function faultsOfLayout({ shown, most, wide }) {
  const faults = [];
  const wider = document.documentElement.scrollWidth - innerWidth;
  if (wider > 0) faults.push(`${wider} pixels wider than the window`);
  const tiles = [...document.querySelectorAll(".tiles > li")];
  if (tiles.length && tiles.length !== 10) faults.push(`${tiles.length} tiles`);
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
  copy.querySelectorAll("script, style").forEach((each) => each.remove());
  const folder = copy.outerHTML.match(/(?<![\w.:/~<])\/(?!(?:proc|sys|dev|etc)\/)(?:[\w.~-]+\/)+[\w.~-]+/);
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
