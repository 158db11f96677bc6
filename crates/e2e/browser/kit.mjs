// What the scripts of this folder share: a browser, pages that complain, and the words exchanged with the test that runs
// the script. A line on the output such as "restart" asks for something to be done; "done" comes back. Lines that begin
// with "ok", "FAILED" or a space are for people.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import assert from "node:assert/strict";
import { chromium } from "playwright-core";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const answers = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

/** Asks the test that runs this script to do something, and waits until it is done. */
export const please = async (what) => {
  console.log(what);
  assert.equal((await answers.next()).value, "done");
};

/** Calls the HTTP API of a server, with a token if there is one; returns the document of the answer. */
export const apiOf = (base, token) => async (method, path, body) => {
  const answer = await fetch(`${base}/api/v1${path}`, {
    method,
    headers: { "content-type": "application/json", ...(token && { authorization: `Bearer ${token}` }) },
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  const text = await answer.text();
  assert.ok(answer.ok, `${method} ${path}: ${answer.status} ${text}`);
  return text ? JSON.parse(text) : null;
};

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--disable-dev-shm-usage", ...(process.getuid() === 0 ? ["--no-sandbox"] : [])],
});

/** With ASSETS=FOLDER, the stylesheet and the module come from there, so that changes are seen without a build. */
const withAssets = async (context) => {
  if (!process.env.ASSETS) return;
  for (const [ending, file] of [["css", "style.css"], ["js", "live.js"]]) {
    await context.route(`**/assets/*.${ending}`, async (route) => {
      const answer = await route.fetch();
      const isOther = ending === "js" && (await answer.text()).startsWith("var Idiomorph");
      return isOther ? route.fulfill({ response: answer }) : route.fulfill({ response: answer, body: readFileSync(`${process.env.ASSETS}/${file}`, "utf8") });
    });
  }
};

/** A page that fails the run if it complains, runs what it must not, or asks anyone but its own server. */
export const visit = async (options = {}) => {
  // A first page in another zone than the server's is loaded twice, the second time while the check goes on.
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, timezoneId: "UTC", ...options });
  await withAssets(context);
  const page = await context.newPage();
  const faults = [];
  let expectsFailures = false;
  page.on("console", (message) => {
    const isNetwork = message.text().startsWith("Failed to load resource");
    if (["warning", "error"].includes(message.type()) && !(isNetwork && expectsFailures)) faults.push(`console: ${message.text()}`);
  });
  page.on("pageerror", (error) => faults.push(`error: ${error.message}`));
  page.on("dialog", (dialog) => {
    faults.push(`dialog: ${dialog.message()}`);
    dialog.dismiss();
  });
  page.on("request", (request) => {
    const { origin, protocol } = new URL(request.url());
    if (!page.url().startsWith("about:") && protocol !== "data:" && origin !== new URL(page.url()).origin) faults.push(`request: ${request.url()}`);
  });
  return { page, context, faults, expectFailures: () => (expectsFailures = true), done: async () => {
    await context.close();
    assert.deepEqual(faults, []);
  } };
};

const tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];

/** Fails if axe finds anything on a page. */
export const accessible = async (page, what) => {
  await page.evaluate(axe);
  const { violations } = await page.evaluate((values) => axe.run(document, { runOnly: { type: "tag", values } }), tags);
  const found = violations.map(({ id, help, nodes }) => `${id}: ${help}: ${nodes.map((node) => node.html).slice(0, 3).join(" ")}`);
  assert.deepEqual(found, [], what);
};

/** Waits until the frame says this of the live state, such as "Live". */
export const liveState = (page, words, options) => page.getByRole("status").filter({ hasText: new RegExp(`^${words}$`) }).waitFor(options);

/** The number of elements of a page. */
export const elements = (page) => page.evaluate(() => document.querySelectorAll("*").length);

/** Prints what the pages show that a failed check leaves behind, and closes them. */
const showPages = async () => {
  for (const context of browser.contexts()) {
    for (const page of context.pages()) {
      const text = await page.evaluate(() => document.body.innerText).catch((error) => error.message);
      console.log(`  ${page.url()}:\n  ${text.slice(0, 2000).replaceAll("\n", "\n  ")}`);
    }
    await context.close();
  }
};

let failed = 0;

/** Runs one check and prints how it ended. With ONLY=WORDS, others than the data and those of that name are left out. */
export const check = async (name, run) => {
  if (process.env.ONLY && name !== "data" && !name.includes(process.env.ONLY)) return;
  const began = Date.now();
  try {
    await run();
    console.log(`ok ${name} (${Date.now() - began} ms)`);
  } catch (error) {
    failed += 1;
    console.log(`FAILED ${name}: ${error.stack}`);
    await showPages();
  }
};

/** Ends the script. */
export const end = async () => {
  await browser.close();
  process.exit(failed === 0 ? 0 : 1);
};
