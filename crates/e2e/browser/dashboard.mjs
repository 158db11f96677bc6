// The dashboard in Chromium: what people see and do, found by role and visible name only.
//
// Arguments: the address of an open server, and of one with the base path /ganger. The line "restart" asks for the open
// server to be killed and started again.
import { createServer, request as send } from "node:http";
import assert from "node:assert/strict";
import { accessible, apiOf, check, elements, end, liveState, please, visit } from "./kit.mjs";

const [open, based] = process.argv.slice(2);
const api = apiOf(open);
const enqueue = async (job) => (await api("POST", "/jobs", job)).ref;

// --- Data ---
const jobs = {};
await check("data", async () => {
  for (let number = 0; number < 60; number += 1) await enqueue({ kind: "send", queue: "mail", tags: ["nightly"], labels: { tenant: "acme" }, payload: { number } });
  jobs.hostile = await enqueue({ kind: "<img src=x onerror=alert(1)>", queue: "a\u202eb<script>alert(2)</script>", payload: "<script>alert(3)</script>", tags: ["\"><b>"] });
  jobs.failed = await enqueue({ kind: "resize", queue: "img", payload: { file: "a.png" }, retry: { max: 0 } });
  const lease = async (queue) => (await api("POST", "/leases", { queues: [queue], worker: "w-1" })).jobs[0];
  const first = await lease("img");
  await api("POST", "/leases/log", { job: first.job ?? first.id, token: first.token, offset: 0, text: "reading a.png\n\u001b[31mno such file\u001b[0m\n" });
  await api("POST", "/leases/fail", { job: first.job ?? first.id, token: first.token, group: "no-file", message: "no such file: a.png", permanent: true });
  jobs.running = await enqueue({ kind: "resize", queue: "img" });
  await lease("img");
  const parts = Array.from({ length: 300 }, (_, at) => `part-${at}`);
  jobs.graph = (await api("POST", "/graphs", { jobs: [
    { name: "first", kind: "split", queue: "graph" },
    ...parts.map((name) => ({ name, kind: "part", queue: "graph", inputs: [{ result_of: "first" }] })),
    { name: "last", kind: "join", queue: "graph", after: parts },
  ] })).graph;
  jobs.operation = (await api("POST", "/operations", { action: "retry", filter: { queue: "elsewhere" }, reason: "a look at the page" })).operation;
  await api("PUT", "/schedules/nightly", { cron: "30 2 * * *", time_zone: "Europe/Vienna", kind: "report", queue: "reports" });
});

const screens = () => ["/", "/queues", "/queue?name=mail", "/jobs", "/jobs?state=failed&kind=resize", "/jobs/new", `/job?id=${jobs.failed}`, `/job?id=${jobs.failed}&view=data`, `/job?id=${jobs.failed}&view=log`, `/job?id=${jobs.running}&view=graph`, `/job?id=${jobs.hostile}&view=history`, "/graphs", `/graph?name=${jobs.graph}`, `/graph?name=${jobs.graph}&open=b1`, `/graph?name=${jobs.graph}&view=levels`, `/graph?name=${jobs.graph}&view=list`, "/stats", "/failures", "/failure?group=no-file", "/schedules", "/schedules/new", "/schedule?id=nightly", "/schedule/edit?id=nightly", "/workers", "/worker?name=w-1", "/events", "/shards", "/search?q=mail", "/about", "/queue/settings?name=mail", "/operations", `/operation?id=${jobs.operation}`, "/audit", "/namespaces", "/?ns=*", "/queues?ns=*"];

const lookAtScreens = (width, height, colorScheme) => check(`screens at ${width}x${height}, ${colorScheme}`, async () => {
  const { page, done } = await visit({ viewport: { width, height }, colorScheme });
  const faulty = [];
  for (const screen of screens()) {
    const answer = await page.goto(`${open}/ui${screen}`);
    assert.equal(answer.status(), 200, screen);
    await page.getByRole("heading", { level: 1 }).waitFor();
    const [content, seen] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
    const count = await elements(page);
    assert.ok(count <= 3000, `${screen} has ${count} elements`);
    assert.ok(content <= seen, `${screen} is ${content} wide on a screen of ${seen}`);
    await accessible(page, screen).catch((error) => faulty.push(error.message));
  }
  assert.equal(faulty.join("\n"), "");
  await done();
});

for (const [width, height] of [[320, 640], [1280, 800], [3840, 2160]]) {
  await Promise.all(["light", "dark"].map((colorScheme) => lookAtScreens(width, height, colorScheme)));
}

await check("200 % zoom", async () => {
  // Zoom halves the room and doubles the pixels.
  const { page, done } = await visit({ viewport: { width: 640, height: 400 }, deviceScaleFactor: 2 });
  await page.goto(`${open}/ui/jobs`);
  await page.getByRole("button", { name: "Apply" }).click();
  await page.getByRole("table", { name: "Jobs" }).waitFor();
  await done();
});

await check("a page is live within a second or two", async () => {
  const { page, expectFailures, done } = await visit();
  expectFailures();
  await page.goto(`${open}/ui/queue?name=live`);
  await page.getByRole("heading", { name: "There is no queue live." }).waitFor();
  await enqueue({ kind: "send", queue: "live" });
  await page.goto(`${open}/ui/queue?name=live`);
  await liveState(page, "Live");
  await page.getByRole("link", { name: "1 Ready", exact: true }).waitFor();
  const sent = Date.now();
  await enqueue({ kind: "send", queue: "live" });
  await page.getByRole("link", { name: "2 Ready", exact: true }).waitFor();
  console.log(`  shown after ${Date.now() - sent} ms`);
  await page.getByRole("button", { name: "Pause live" }).click();
  await liveState(page, "Paused");
  await page.getByText(/^As of \d\d:\d\d:\d\d, \d+ s ago$/).waitFor();
  await page.getByRole("button", { name: "Resume live" }).click();
  await liveState(page, "Live");
  // A hidden tab closes its stream; what it missed comes when it is seen again.
  const hide = (hidden) => page.evaluate((hidden) => {
    Object.defineProperty(document, "hidden", { configurable: true, get: () => hidden });
    document.dispatchEvent(new Event("visibilitychange"));
  }, hidden);
  await hide(true);
  await enqueue({ kind: "send", queue: "live" });
  await hide(false);
  await page.getByRole("link", { name: "3 Ready", exact: true }).waitFor();
  await done();
});

await check("new jobs do not push the rows", async () => {
  const { page, done } = await visit();
  await page.goto(`${open}/ui/jobs?queue=mail`);
  const first = await page.getByRole("row").nth(1).getByRole("rowheader").innerText();
  await liveState(page, "Live");
  await page.getByRole("row").nth(1).getByRole("checkbox").check();
  await enqueue({ kind: "send", queue: "mail" });
  await page.getByRole("link", { name: "1 new job: show" }).waitFor();
  assert.equal(await page.getByRole("row").nth(1).getByRole("rowheader").innerText(), first);
  assert.ok(await page.getByRole("row").nth(1).getByRole("checkbox").isChecked(), "the selection stays");
  await page.getByRole("link", { name: "1 new job: show" }).click();
  await page.getByText("61 jobs match").waitFor();
  await done();
});

await check("actions with dialogs", async () => {
  const { page, expectFailures, done } = await visit();
  const job = await enqueue({ kind: "send", queue: "actions" });
  await page.goto(`${open}/ui/job?id=${job}`);
  await page.getByText("No worker has asked the queue actions").waitFor();
  await page.getByRole("button", { name: "Cancel", exact: true }).click();
  const dialog = page.getByRole("dialog", { name: `Cancel job ${job}?` });
  await dialog.waitFor();
  assert.ok(await dialog.getByRole("link", { name: "Back" }).evaluate((it) => it === document.activeElement), "the focus is on what changes nothing");
  await accessible(page, "dialog");
  await page.keyboard.press("Escape");
  await dialog.waitFor({ state: "detached" });
  assert.ok(await page.getByRole("button", { name: "Cancel", exact: true }).evaluate((it) => it === document.activeElement), "the focus comes back");
  await page.getByRole("button", { name: "Cancel", exact: true }).click();
  await dialog.getByLabel("Reason").fill("by hand");
  await dialog.getByRole("button", { name: "Cancel this job" }).click();
  await page.getByRole("status").filter({ hasText: `Cancelled ${job}.` }).waitFor();
  assert.equal((await api("GET", `/jobs/${encodeURIComponent(job)}`)).state, "cancelled");
  await page.getByRole("button", { name: "Retry", exact: true }).click();
  await page.getByRole("status").filter({ hasText: `Retried ${job}.` }).waitFor();
  assert.equal((await api("GET", `/jobs/${encodeURIComponent(job)}`)).state, "ready");
  await page.goto(`${open}/ui/queue?name=actions`);
  await page.getByRole("button", { name: "Pause queue" }).click();
  await page.getByRole("button", { name: "Undo" }).click();
  await page.getByRole("status").filter({ hasText: "Resumed the queue actions." }).waitFor();
  await page.goto(`${open}/ui/jobs?queue=actions`);
  await page.getByRole("row").nth(1).getByRole("checkbox").check();
  await page.getByRole("group", { name: "Selected jobs" }).getByRole("button", { name: "Delete" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Delete 1 job" }).click();
  await page.getByRole("status").filter({ hasText: "Deleted 1 job." }).waitFor();
  await page.getByText("No job matches.").waitFor();
  await page.getByRole("link", { name: "New job" }).first().click();
  await page.getByLabel("Kind").fill("send");
  await page.getByLabel("Payload").fill("{");
  expectFailures();
  await page.getByRole("button", { name: "Enqueue job" }).click();
  await page.getByRole("alert").filter({ hasText: "line 1" }).waitFor();
  await page.getByLabel("Payload").fill("{}");
  await page.getByRole("button", { name: "Enqueue job" }).click();
  await page.getByRole("heading", { level: 1, name: /^Job 1\// }).waitFor();
  await done();
});

await check("a schedule is looked at before it is saved", async () => {
  const { page, expectFailures, done } = await visit();
  await page.goto(`${open}/ui/schedules`);
  await page.getByRole("link", { name: "New schedule" }).click();
  await page.getByLabel("Schedule", { exact: true }).fill("weekly");
  await page.getByLabel("Cron expression").fill("61 2 * * 1");
  await page.getByLabel("Time zone").fill("Europe/Vienna");
  await page.getByLabel("Kind").fill("report");
  expectFailures();
  await page.getByRole("button", { name: "Preview" }).click();
  await page.getByRole("alert").filter({ hasText: "1 field cannot be used" }).waitFor();
  await accessible(page, "a form with a refused field");
  await page.getByLabel("Cron expression").fill("0 2 * * 1");
  await page.getByRole("button", { name: "Save schedule" }).click();
  await page.getByRole("status").filter({ hasText: "Not saved yet" }).waitFor();
  assert.equal(await page.getByRole("table", { name: "Next times" }).getByRole("row").count(), 6);
  await page.getByRole("button", { name: "Save schedule" }).click();
  await page.getByRole("status").filter({ hasText: "Made the schedule weekly." }).waitFor();
  await page.getByRole("heading", { level: 1, name: "Schedule weekly" }).waitFor();
  await page.getByText("at 02:00 on Mondays").waitFor();
  await page.getByRole("link", { name: "Edit", exact: true }).click();
  await page.getByLabel("While a job of it is live").selectOption({ label: "the run is skipped" });
  await page.getByRole("button", { name: "Save schedule" }).click();
  await page.getByRole("status").filter({ hasText: "Changed the schedule weekly." }).waitFor();
  assert.equal((await api("GET", "/schedules/weekly")).overlap, "skip");
  await page.getByRole("button", { name: "Pause schedule" }).click();
  await page.getByRole("button", { name: "Undo" }).click();
  await page.getByRole("status").filter({ hasText: "Resumed the schedule weekly." }).waitFor();
  await page.getByRole("button", { name: "Delete schedule" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Delete this schedule" }).click();
  await page.getByRole("status").filter({ hasText: "Deleted the schedule weekly." }).waitFor();
  await done();
});

await check("events follow, older rows stay, and a busy second is summed", async () => {
  const { page, done } = await visit();
  const first = await enqueue({ kind: "send", queue: "tail" });
  await page.goto(`${open}/ui/events?queue=tail`);
  const table = page.getByRole("table", { name: "Events" });
  await table.getByRole("link", { name: first, exact: true }).waitFor();
  await liveState(page, "Live");
  const many = Array.from({ length: 120 }, (_, at) => ({ name: `tail-${at}`, kind: "send", queue: "tail" }));
  await api("POST", "/graphs", { jobs: many });
  await table.getByText(/^\d+ more in this second$/).waitFor();
  const next = await enqueue({ kind: "send", queue: "tail" });
  await table.getByRole("link", { name: next, exact: true }).or(table.getByText(/^7\d more/)).first().waitFor();
  await table.getByRole("link", { name: first, exact: true }).waitFor();
  await done();
});

await check("keyboard alone", async () => {
  const { page, done } = await visit();
  await page.goto(`${open}/ui/`);
  await page.keyboard.press("Tab");
  await page.keyboard.press("Enter");
  assert.equal(new URL(page.url()).hash, "#main", "the first stop leads to the content");
  await page.keyboard.press("g");
  await page.keyboard.press("j");
  await page.getByRole("heading", { level: 1, name: "Jobs" }).waitFor();
  await page.keyboard.press("j");
  await page.keyboard.press("j");
  await page.keyboard.press("x");
  assert.ok(await page.getByRole("row").nth(2).getByRole("checkbox").isChecked());
  await page.keyboard.press("c");
  await page.getByRole("dialog", { name: "Cancel 1 job?" }).waitFor();
  await page.keyboard.press("Escape");
  await page.keyboard.press("Escape");
  assert.ok(!(await page.getByRole("row").nth(2).getByRole("checkbox").isChecked()));
  await page.keyboard.press("/");
  await page.keyboard.type(jobs.failed);
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { level: 1, name: `Job ${jobs.failed}` }).waitFor();
  await page.keyboard.press("3");
  await page.getByRole("region", { name: "Log" }).getByText("no such file").waitFor();
  await page.keyboard.press("?");
  await page.getByRole("dialog", { name: "Keys" }).waitFor();
  await accessible(page, "help");
  await page.getByLabel("Switch single keys off").check();
  await page.keyboard.press("Escape");
  await page.keyboard.press("?");
  assert.equal(await page.getByRole("dialog").count(), 0);
  await done();
});

await check("without JavaScript", async () => {
  const { page, done } = await visit({ javaScriptEnabled: false });
  const job = await enqueue({ kind: "send", queue: "plain" });
  await page.goto(`${open}/ui/jobs`);
  await page.getByRole("status").filter({ hasText: "Not live" }).waitFor();
  await page.getByLabel("Queue", { exact: true }).fill("plain");
  await page.getByRole("button", { name: "Apply" }).click();
  await page.getByText("1 job matches").waitFor();
  await page.getByRole("link", { name: job }).click();
  await page.getByRole("button", { name: "Cancel", exact: true }).click();
  await page.getByRole("heading", { level: 1, name: `Cancel job ${job}?` }).waitFor();
  await page.getByLabel("Reason").fill("without a script");
  await page.getByRole("button", { name: "Cancel this job" }).click();
  await page.getByText(`Cancelled ${job}.`).waitFor();
  await page.getByText("Reason: without a script").waitFor();
  await page.goto(`${open}/ui/jobs?queue=mail&limit=25`);
  await page.getByRole("link", { name: "Older" }).click();
  await page.getByRole("link", { name: "Newer" }).click();
  await page.getByRole("row").nth(1).getByRole("checkbox").check();
  await page.getByRole("group", { name: "Selected jobs" }).getByRole("button", { name: "Cancel" }).click();
  await page.getByRole("button", { name: "Cancel 1 job" }).click();
  await page.getByText("Cancelled 1 job.").waitFor();
  await done();
});

await check("a graph is drawn, opens, and recolours", async () => {
  const { page, done } = await visit();
  await page.goto(`${open}/ui/`);
  await page.keyboard.press("g");
  await page.keyboard.press("g");
  await page.getByRole("heading", { level: 1, name: "Graphs" }).waitFor();
  await page.getByRole("link", { name: jobs.graph }).click();
  await page.getByRole("heading", { level: 1, name: `Graph ${jobs.graph}` }).waitFor();
  const drawing = page.getByRole("region", { name: "Drawing of the graph" });
  await drawing.getByRole("link", { name: "part × 300, 300 (blocked)" }).waitFor();
  assert.equal(await drawing.getByRole("link").count(), 3);
  await liveState(page, "Live");
  const lease = (await api("POST", "/leases", { queues: ["graph"], worker: "w-2" })).jobs[0];
  await drawing.getByRole("link", { name: "split first, running" }).waitFor();
  await api("POST", "/leases/complete", { job: lease.job ?? lease.id, token: lease.token, result: 1 });
  await drawing.getByRole("link", { name: "part × 300, 300 (ready)" }).waitFor();
  await drawing.getByRole("link", { name: "part × 300, 300 (ready)" }).click();
  await drawing.getByRole("link", { name: "and 250 more part, 250 (ready)" }).waitFor();
  await page.getByRole("link", { name: "Close all" }).click();
  await page.getByRole("link", { name: "Fit" }).click();
  const width = await drawing.evaluate((it) => it.firstElementChild.getBoundingClientRect().width);
  assert.ok(width <= 1280, `it fits: ${width}`);
  await page.getByRole("link", { name: "Show as table" }).click();
  await page.getByRole("table", { name: "Levels" }).getByRole("row").nth(2).getByText("part").waitFor();
  await page.getByRole("button", { name: "Cancel graph" }).click();
  const dialog = page.getByRole("dialog", { name: `Cancel the graph ${jobs.graph}?` });
  await dialog.getByText("301 jobs of 302 have not ended").waitFor();
  await dialog.getByRole("button", { name: "Cancel this graph" }).click();
  await page.getByRole("status").filter({ hasText: "Cancelled 301 jobs" }).waitFor();
  assert.equal((await api("GET", `/graphs/${jobs.graph}`)).counts.cancelled, 301);
  await done();
});

/** Puts a tab in front or behind: without a screen, Chromium calls every tab visible. */
const bringToFront = (tab, isInFront) => tab.evaluate((hidden) => {
  Object.defineProperty(document, "hidden", { configurable: true, value: hidden });
  Object.defineProperty(document, "visibilityState", { configurable: true, value: hidden ? "hidden" : "visible" });
  document.dispatchEvent(new Event("visibilitychange"));
}, !isInFront);

await check("a log follows its end, stops when scrolled up, and resumes", async () => {
  const { page, done } = await visit();
  const id = await enqueue({ kind: "send", queue: "logs" });
  const lease = (await api("POST", "/leases", { queues: ["logs"], worker: "w-1" })).jobs[0];
  let offset = 0;
  const write = async (text) => {
    await api("POST", "/leases/log", { job: lease.job ?? lease.id, token: lease.token, offset, text });
    offset += text.length;
  };
  const lines = (from, to) => Array.from({ length: to - from }, (_, at) => `line ${from + at}\n`).join("");
  await write(lines(1, 201));
  await page.goto(`${open}/ui/job?id=${id}&view=log`);
  await liveState(page, "Live");
  const log = page.getByRole("region", { name: "Log" });
  const resume = page.getByRole("button", { name: "Follow" });
  const fromEnd = () => log.evaluate((it) => it.scrollHeight - it.clientHeight - it.scrollTop);
  assert.ok(await fromEnd() < 20, "it begins at the end");
  await write(lines(201, 211));
  await log.getByText("line 210").waitFor();
  assert.ok(await fromEnd() < 20, "it follows");
  await log.evaluate((it) => it.scrollTo(0, 0));
  await resume.waitFor();
  await write(lines(211, 221));
  await log.getByText("line 220").waitFor({ state: "attached" });
  assert.equal(await log.evaluate((it) => it.scrollTop), 0, "it stays where somebody reads");
  await resume.click();
  await resume.waitFor({ state: "hidden" });
  assert.ok(await fromEnd() < 20, "it is at the end again");
  await done();
});

await check("ten tabs at once", async () => {
  const { page, context, done } = await visit();
  await page.goto(`${open}/ui/about`);
  await enqueue({ kind: "send", queue: "tabs" });
  const tabs = [];
  for (let number = 0; number < 10; number += 1) {
    const tab = await context.newPage();
    await tab.goto(`${open}/ui/queue?name=tabs`);
    await liveState(tab, "Live");
    // A browser gives a host six connections, too few for ten streams: a tab behind others gives its own back.
    await bringToFront(tab, false);
    tabs.push(tab);
  }
  await enqueue({ kind: "send", queue: "tabs" });
  for (const tab of tabs) {
    await tab.getByRole("link", { name: "1 Ready", exact: true }).waitFor();
    await bringToFront(tab, true);
    await tab.getByRole("link", { name: "2 Ready", exact: true }).waitFor();
    await bringToFront(tab, false);
  }
  await done();
});

await check("hostile names stay names", async () => {
  const { page, done } = await visit();
  await page.goto(`${open}/ui/job?id=${jobs.hostile}&view=data`);
  await page.getByText("<script>alert(3)</script>").waitFor();
  await page.getByText("<img src=x onerror=alert(1)>").first().waitFor();
  await page.getByText("\\u{202e}").first().waitFor();
  await done();
});

await check("a server that is killed and started again", async () => {
  const { page, expectFailures, done } = await visit();
  await page.goto(`${open}/ui/queue?name=mail`);
  await liveState(page, "Live");
  expectFailures();
  await please("restart");
  await liveState(page, "Live", { timeout: 30000 });
  const ready = await page.getByRole("link", { name: /Ready$/ }).innerText();
  await enqueue({ kind: "send", queue: "mail" });
  await page.getByRole("link", { name: `${Number(ready) + 1} Ready`, exact: true }).waitFor({ timeout: 30000 });
  await done();
});

/** A small proxy that puts /ganger in front, and takes it away again or not. */
const proxy = (strips) => new Promise((resolve) => {
  const target = new URL(based);
  const server = createServer((request, response) => {
    const path = strips ? request.url.replace(/^\/ganger/, "") || "/" : request.url;
    const onward = send({ host: target.hostname, port: target.port, method: request.method, path, headers: request.headers }, (answer) => {
      response.writeHead(answer.statusCode, answer.headers);
      answer.pipe(response);
    });
    onward.on("error", () => response.destroy());
    request.pipe(onward);
  });
  server.listen(0, "127.0.0.1", () => resolve(server));
});

for (const strips of [true, false]) {
  await check(`a base path behind a proxy that ${strips ? "strips" : "keeps"} it`, async () => {
    const server = await proxy(strips);
    const { page, done } = await visit();
    await page.goto(`http://127.0.0.1:${server.address().port}/ganger/ui/`);
    await page.getByRole("link", { name: "Jobs", exact: true }).click();
    await page.getByRole("link", { name: "New job" }).first().click();
    await page.getByLabel("Kind").fill("send");
    await page.getByRole("button", { name: "Enqueue job" }).click();
    await page.getByRole("status").filter({ hasText: "Enqueued 1/" }).waitFor();
    await page.getByRole("link", { name: "Queues", exact: true }).click();
    await liveState(page, "Live");
    await done();
    server.close();
    server.closeAllConnections();
  });
}

await check("bytes and elements of a page of jobs", async () => {
  const { page, done } = await visit();
  let bytes = 0;
  page.on("response", (response) => (bytes += Number(response.headers()["content-length"] ?? 0)));
  await page.goto(`${open}/ui/jobs?limit=100`);
  await page.getByRole("table", { name: "Jobs" }).waitFor();
  await liveState(page, "Live");
  const elements = await page.evaluate(() => document.querySelectorAll("*").length);
  console.log(`  ${bytes} bytes, ${elements} elements`);
  assert.ok(bytes <= 150 * 1024, `${bytes} bytes`);
  assert.ok(elements <= 3000, `${elements} elements`);
  await done();
});

await end();
