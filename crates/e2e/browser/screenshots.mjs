// Pictures of the dashboard: fills a server with a fixed set of jobs and takes pages in both themes at 1280x800, in about three minutes.
// Arguments: the address of an empty server, and the directory for the pictures. `scripts/screenshots` starts both.
import { chromium } from "playwright-core";

const [server, directory] = process.argv.slice(2);

const api = async (method, path, body) => {
  const answer = await fetch(`${server}/api/v1${path}`, {
    method,
    headers: { "content-type": "application/json" },
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  const text = await answer.text();
  if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${text}`);
  return text ? JSON.parse(text) : null;
};
const lease = async (queue, worker = "w-1") => (await api("POST", "/leases", { queues: [queue], worker })).jobs[0];
const complete = (held, result) => api("POST", "/leases/complete", { job: held.id, token: held.token, result });
const fail = (held, group, message) => api("POST", "/leases/fail", { job: held.id, token: held.token, group, message, permanent: true });

// Jobs in several queues, so that each page has something to say.
for (let number = 0; number < 48; number += 1) await api("POST", "/jobs", { kind: "send", queue: "mail", labels: { tenant: number % 3 ? "acme" : "globex" }, payload: { number } });
for (let number = 0; number < 60; number += 1) await api("POST", "/jobs", { kind: "resize", queue: "img", payload: { file: `${number}.png` } });
for (let number = 0; number < 42; number += 1) await complete(await lease("img"), { width: 640 });
for (let number = 0; number < 6; number += 1) await fail(await lease("img"), "no-file", `no such file: ${number}.png`);
// Some minutes of work for the charts, and the first rates.
for (let tick = 0; tick < 75; tick += 1) {
  for (let number = 0; number < 3 + (tick % 5); number += 1) await api("POST", "/jobs", { kind: "resize", queue: "img", payload: { file: "more.png" } });
  for (let number = 0; number < 4; number += 1) await complete(await lease("img"), { width: 640 });
  await new Promise((done) => setTimeout(done, 2000));
}

for (const worker of ["w-2", "w-3", "w-4"]) await lease("img", worker);
await api("PUT", "/queues/billing", { paused: true });
for (let number = 0; number < 9; number += 1) await api("POST", "/jobs", { kind: "invoice", queue: "billing", payload: { number } });
await api("PUT", "/schedules/nightly", { cron: "30 2 * * *", time_zone: "Europe/Vienna", kind: "report", queue: "reports" });

const parts = Array.from({ length: 400 }, (_, at) => `part-${at}`);
const { graph } = await api("POST", "/graphs", { jobs: [
  { name: "fetch", kind: "fetch", queue: "video" },
  { name: "split", kind: "split", queue: "video", inputs: [{ result_of: "fetch" }] },
  ...parts.map((name) => ({ name, kind: "encode", queue: "video", inputs: [{ result_of: "split" }] })),
  { name: "subtitles", kind: "transcribe", queue: "video", inputs: [{ result_of: "fetch" }] },
  { name: "join", kind: "join", queue: "video", after: parts.map((name) => ({ name, policy: "wait" })) },
  { name: "publish", kind: "publish", queue: "video", inputs: [{ result_of: "join" }], after: ["subtitles"] },
  { name: "notify", kind: "mail", queue: "video", after: ["publish"] },
] });
await complete(await lease("video"), { url: "s3://in/film.mov" });
for (let number = 0; number < 2; number += 1) await complete(await lease("video"), { parts: 400 });
for (let number = 0; number < 180; number += 1) await complete(await lease("video"), { part: number });
for (let number = 0; number < 3; number += 1) await fail(await lease("video"), "out-of-memory", "killed: 4 GiB of 4 GiB used");
for (let number = 0; number < 8; number += 1) await lease("video", `encoder-${number}`);

const waiting = (await api("GET", "/jobs?queue=mail&state=ready&limit=1")).jobs[0];
const pages = {
  overview: "/",
  queue: "/queue?name=mail",
  job: `/job?id=1/${waiting.id}`,
  graph: `/graph?name=${encodeURIComponent(graph)}`,
};

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--disable-dev-shm-usage", ...(process.getuid() === 0 ? ["--no-sandbox"] : [])],
});
for (const colorScheme of ["light", "dark"]) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, colorScheme, timezoneId: "UTC" });
  for (const [name, path] of Object.entries(pages)) {
    // A tab of its own: a tab that was paused stays paused.
    const page = await context.newPage();
    // The drawing of a graph is below its lists.
    if (name === "graph") await page.setViewportSize({ width: 1280, height: 960 });
    await page.goto(`${server}/ui${path}`);
    await page.getByRole("status").filter({ hasText: /^Live$/ }).waitFor();
    await page.getByRole("button", { name: "Pause live" }).click();
    // Times differ from run to run: the pictures show the same ones always. That the page stands still for its picture
    // is no part of it.
    await page.evaluate(() => {
      const state = document.querySelector("#live-state");
      state.textContent = "Live";
      state.dataset.state = "live";
      document.querySelector("#live-pause").textContent = "Pause live";
      for (const time of document.querySelectorAll("time")) {
        const isFresh = time.dataset.fresh !== undefined;
        time.textContent = isFresh ? (time.dataset.fresh === "ago" ? "2 min ago" : "2 min 4 s") : "2026-01-31 12:01:07";
      }
    });
    await page.mouse.move(0, 0);
    await page.screenshot({ path: `${directory}/${name}-${colorScheme}.png` });
    await page.close();
  }
  await context.close();
}
await browser.close();
