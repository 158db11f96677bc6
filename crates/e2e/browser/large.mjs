// The dashboard over many jobs in Chromium: pages stay small, can be walked, and are painted as fast as a plain page.
//
// Argument: the address of an open server whose queue "large" has 200,000 jobs; the oldest one of all is of the kind "rare".
import { createServer } from "node:http";
import assert from "node:assert/strict";
import { apiOf, check, elements, end, liveState, visit } from "./kit.mjs";

const [open] = process.argv.slice(2);
const api = apiOf(open);

/** Fails if a page has more elements than this; prints their number. */
const isSmall = async (page, what, max = 3000) => {
  const count = await elements(page);
  console.log(`  ${what}: ${count} elements`);
  assert.ok(count <= max, `${what} has ${count} elements`);
};

await check("pages stay small", async () => {
  const { page, done } = await visit();
  for (const address of ["/", "/queues", "/queue?name=large", "/jobs?queue=large&limit=100", "/graphs", "/stats"]) {
    await page.goto(`${open}/ui${address}`);
    await page.getByRole("heading", { level: 1 }).waitFor();
    await isSmall(page, address);
  }
  // 200 rows in which every value is a link and every state a shape have more.
  await page.goto(`${open}/ui/jobs?queue=large&limit=200`);
  assert.equal(await page.getByRole("table", { name: "Jobs" }).getByRole("row").count(), 201);
  await isSmall(page, "/jobs with 200 rows", 5000);
  await done();
});

await check("events are kept in bounds while they come", async () => {
  const { page, done } = await visit();
  await page.goto(`${open}/ui/events?queue=busy`);
  await liveState(page, "Live");
  const table = page.getByRole("table", { name: "Events" });
  let last;
  for (let round = 0; round < 15; round += 1) {
    const many = Array.from({ length: 40 }, (_, at) => ({ name: `j${at}`, kind: "send", queue: "busy" }));
    const { graph } = await api("POST", "/graphs", { jobs: many });
    last = (await api("GET", `/jobs?graph=${graph}&limit=1`)).jobs[0].ref;
    await table.getByRole("link", { name: last, exact: true }).first().waitFor();
  }
  // 500 rows, one with the names of the columns, and the row that came last.
  const rows = await table.getByRole("row").count();
  assert.ok(rows <= 502, `${rows} rows`);
  await isSmall(page, `/events with ${rows} rows`, 9000);
  await done();
});

await check("a long list is walked to the end of its filter and back", async () => {
  const { page, done } = await visit();
  await page.goto(`${open}/ui/jobs?queue=large&limit=200`);
  await page.getByText(/match$/).first().waitFor();
  const first = () => page.getByRole("row").nth(1).getByRole("rowheader").innerText();
  const seen = [await first()];
  for (let step = 0; step < 5; step += 1) {
    await page.getByRole("link", { name: "Older" }).click();
    await page.waitForFunction((before) => !document.body.innerText.includes(before), seen.at(-1));
    seen.push(await first());
  }
  assert.equal(new Set(seen).size, 6, "each page has other jobs");
  for (let step = 4; step >= 0; step -= 1) {
    await page.getByRole("link", { name: "Newer" }).click();
    await page.getByRole("link", { name: seen[step], exact: true }).waitFor();
  }
  await done();
});

await check("a rare job is looked for further", async () => {
  const { page, done } = await visit();
  await page.goto(`${open}/ui/jobs?kind=rare`);
  for (let step = 0; ; step += 1) {
    const found = page.getByRole("table", { name: "Jobs" }).getByRole("link", { name: "rare", exact: true });
    const further = page.getByRole("link", { name: "Look further" });
    await found.or(further).first().waitFor();
    if (await found.count() > 0) break;
    assert.ok(step < 100, "it is found in the end");
    await further.click();
  }
  await page.getByText("at least 1 job matches").waitFor();
  await page.getByRole("link", { name: "Count exactly" }).click();
  await page.getByText("1 job matches", { exact: true }).waitFor();
  await done();
});

/** A page of 50 rows without anything of ours. */
const plain = () => new Promise((resolve) => {
  const rows = Array.from({ length: 50 }, (_, at) => `<tr><th>${at}</th>${"<td>text</td>".repeat(8)}</tr>`).join("");
  const server = createServer((_, response) => {
    response.setHeader("content-type", "text/html");
    response.end(`<!doctype html><html lang="en"><title>plain</title><table>${rows}</table></html>`);
  });
  server.listen(0, "127.0.0.1", () => resolve(server));
});

await check("first paint beside that of a plain page", async () => {
  const server = await plain();
  const addresses = { plain: `http://127.0.0.1:${server.address().port}/`, jobs: `${open}/ui/jobs?queue=large`, overview: `${open}/ui/` };
  const times = { plain: [], jobs: [], overview: [] };
  for (let round = 0; round < 7; round += 1) {
    for (const [name, address] of Object.entries(addresses)) {
      const { page, done } = await visit();
      await page.goto(address, { waitUntil: "load" });
      const paint = await page.evaluate(() => new Promise((resolve) => new PerformanceObserver((list) => {
        const first = list.getEntries().find(({ name }) => name === "first-contentful-paint");
        if (first) resolve(first.startTime);
      }).observe({ type: "paint", buffered: true })));
      times[name].push(paint);
      await done();
    }
  }
  const median = (values) => values.sort((a, b) => a - b)[Math.floor(values.length / 2)];
  const base = median(times.plain);
  for (const name of ["jobs", "overview"]) {
    const paint = median(times[name]);
    console.log(`  ${name}: painted after ${Math.round(paint)} ms, the plain page after ${Math.round(base)} ms: ${(paint / base).toFixed(2)} times`);
  }
  server.close();
  server.closeAllConnections();
});

await end();
