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
        const found = await open.tab.evaluate((rules) => axe.run(document, { runOnly: rules }), RULES);
        await open.context.close();
        const faults = [...plain.said, ...(wider > 0 ? [`${wider} pixels wider than the window`] : [])];
        faults.push(...found.violations.map((each) => `${each.id}: ${each.help}, such as ${each.nodes[0].html.slice(0, 200)}`));
        failed = failed || faults.length > 0;
        console.log(`${path.basename(page)}, ${width} pixels, ${colorScheme}: ${faults.length ? faults.join("\n  ") : "nothing found"}`);
      }
    }
  }
  await browser.close();
  process.exit(failed ? 1 : 0);
})();
