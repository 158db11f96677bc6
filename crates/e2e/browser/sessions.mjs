// Sessions in Chromium: signing in and out, what a role shows, and rights that end while a page is open.
//
// Arguments: the secrets of tokens by their names, as JSON; the addresses of a server that asks for tokens, of one whose
// sessions last five seconds, and of one that is read only. Lines on the output: "restart" for the first server,
// "revoke NAME", and "grant NAME GRANTS".
import assert from "node:assert/strict";
import { accessible, apiOf, check, end, liveState, please, visit } from "./kit.mjs";

const [secrets, closed, brief, readOnly] = process.argv.slice(2);
const secretOf = (name) => JSON.parse(secrets)[name];
const api = apiOf(closed, secretOf("root"));
const enqueue = async (job) => (await api("POST", "/jobs", job)).ref;
const stateOf = async (job) => (await api("GET", `/jobs/${encodeURIComponent(job)}`)).state;

/** Changes the rights of a token, and waits until the server knows it. */
const change = async (what) => {
  await please(what);
  const [, name, grants] = what.split(" ");
  for (;;) {
    const answer = await fetch(`${closed}/api/v1/whoami`, { headers: { authorization: `Bearer ${secretOf(name)}` } });
    const known = answer.ok ? (await answer.json()).grants.map(({ role, namespace }) => `${role}@${namespace}`).join() : "";
    if (known === (grants ?? "")) return;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
};

const heading = (page, name) => page.getByRole("heading", { level: 1, name }).waitFor();
const button = (page, name) => page.getByRole("button", { name, exact: true });

/** Opens a page as the owner of a token, which ends in the page that was asked for. */
const signIn = async (page, name, address) => {
  await page.goto(address);
  await page.getByLabel("Token").fill(secretOf(name));
  await button(page, "Sign in").click();
};

await check("signing in and out", async () => {
  const { page, context, expectFailures, done } = await visit();
  expectFailures();
  await page.goto(`${closed}/ui/jobs?queue=mail`);
  await accessible(page, "sign in");
  await page.getByLabel("Token").fill("not-a-token-at-all");
  await button(page, "Sign in").click();
  await page.getByRole("alert").filter({ hasText: "That token is not known, or has expired." }).waitFor();
  await button(page, "Show").click();
  assert.equal(await page.getByLabel("Token").getAttribute("type"), "text");
  await page.getByLabel("Token").fill(secretOf("root"));
  await button(page, "Sign in").click();
  await heading(page, "Jobs");
  assert.equal(new URL(page.url()).search, "?queue=mail");
  await liveState(page, "Live");
  const cookies = (await context.cookies()).filter(({ name }) => name.includes("session"));
  assert.deepEqual(cookies.map(({ httpOnly, sameSite, path }) => [httpOnly, sameSite, path]), [[true, "Strict", "/ui"]]);
  await page.getByRole("link", { name: "New job" }).first().click();
  await page.getByLabel("Kind").fill("send");
  await button(page, "Enqueue job").click();
  await page.getByRole("status").filter({ hasText: "Enqueued 1/" }).waitFor();
  await button(page, "Sign out").click();
  await heading(page, "Sign in");
  await page.goto(`${closed}/ui/queues`);
  await heading(page, "Sign in");
  await done();
});

await check("a token that may read nothing is refused", async () => {
  const { page, expectFailures, done } = await visit();
  expectFailures();
  await signIn(page, "hands", `${closed}/ui/`);
  await page.getByRole("alert").filter({ hasText: "This token may take jobs and nothing else." }).waitFor();
  await done();
});

await check("a reader is shown no actions", async () => {
  const { page, done } = await visit();
  const job = await enqueue({ kind: "send", queue: "read" });
  await signIn(page, "eyes", `${closed}/ui/job?id=${job}`);
  await heading(page, `Job ${job}`);
  await accessible(page, "a job without actions");
  for (const name of ["Cancel", "Retry", "Delete", "Track"]) assert.equal(await button(page, name).count(), 0, name);
  await page.goto(`${closed}/ui/queue?name=read`);
  await heading(page, "Queue read");
  assert.equal(await button(page, "Pause queue").count(), 0);
  // The button that is missing where somebody looks for it is explained.
  await api("POST", "/leases", { queues: ["read"], worker: "w" }).then(({ jobs: [{ job, id, token }] }) => api("POST", "/leases/fail", { job: job ?? id, token, message: "no", permanent: true }));
  await page.goto(`${closed}/ui/job?id=${job}`);
  await page.getByText("Needs the role operator in default.").waitFor();
  await done();
});

await check("changed rights count on the open page", async () => {
  const { page, expectFailures, done } = await visit();
  const job = await enqueue({ kind: "send", queue: "rights" });
  await signIn(page, "op", `${closed}/ui/queue?name=rights`);
  await button(page, "Pause queue").waitFor();
  await liveState(page, "Live");
  expectFailures();
  await change("grant op reader@default");
  await button(page, "Pause queue").waitFor({ state: "detached" });
  await page.goto(`${closed}/ui/job?id=${job}`);
  await heading(page, `Job ${job}`);
  assert.equal(await button(page, "Cancel").count(), 0);
  await change("grant op operator@default");
  await button(page, "Cancel").waitFor();
  await done();
});

await check("a right that ends behind a button refuses it", async () => {
  const { page, expectFailures, done } = await visit();
  await enqueue({ kind: "send", queue: "behind" });
  await signIn(page, "op", `${closed}/ui/queue?name=behind`);
  await liveState(page, "Live");
  await button(page, "Pause live").click();
  await change("grant op reader@default");
  expectFailures();
  await button(page, "Pause queue").click();
  await heading(page, "You may not do this");
  assert.equal((await api("GET", "/queues/behind")).settings.paused, false);
  await change("grant op operator@default");
  await done();
});

await check("a revoked token ends the page", async () => {
  const { page, expectFailures, done } = await visit();
  await signIn(page, "gone", `${closed}/ui/queues`);
  await liveState(page, "Live");
  expectFailures();
  await change("revoke gone");
  await heading(page, "Sign in");
  await page.getByLabel("Token").fill(secretOf("gone"));
  await button(page, "Sign in").click();
  await page.getByRole("alert").filter({ hasText: "That token is not known, or has expired." }).waitFor();
  await page.getByLabel("Token").fill(secretOf("eyes"));
  await button(page, "Sign in").click();
  await heading(page, "Queues");
  await done();
});

await check("a revoked token does nothing any more", async () => {
  const { page, expectFailures, done } = await visit();
  const job = await enqueue({ kind: "send", queue: "revoked" });
  await signIn(page, "late", `${closed}/ui/job?id=${job}`);
  await liveState(page, "Live");
  await button(page, "Pause live").click();
  await button(page, "Cancel").click();
  const dialog = page.getByRole("dialog", { name: `Cancel job ${job}?` });
  await dialog.waitFor();
  expectFailures();
  await change("revoke late");
  await dialog.getByRole("button", { name: "Cancel this job" }).click();
  await heading(page, "Sign in");
  assert.equal(await stateOf(job), "ready");
  await done();
});

await check("a restart signs nobody out", async () => {
  const { page, expectFailures, done } = await visit();
  await signIn(page, "eyes", `${closed}/ui/queues`);
  await liveState(page, "Live");
  expectFailures();
  await please("restart");
  await liveState(page, "Live", { timeout: 30000 });
  await page.goto(`${closed}/ui/jobs`);
  await heading(page, "Jobs");
  await done();
});

await check("a session expires, also on an open page", async () => {
  const { page, expectFailures, done } = await visit();
  await signIn(page, "root", `${brief}/ui/queues`);
  await heading(page, "Queues");
  expectFailures();
  await heading(page, "Sign in");
  await page.getByLabel("Token").fill(secretOf("root"));
  await button(page, "Sign in").click();
  await heading(page, "Queues");
  await done();
});

await check("read only", async () => {
  const { page, expectFailures, done } = await visit();
  const open = apiOf(readOnly);
  const job = (await open("POST", "/jobs", { kind: "send", queue: "mail" })).ref;
  await page.goto(`${readOnly}/ui/job?id=${job}`);
  await page.getByText("Read only", { exact: true }).waitFor();
  assert.equal(await button(page, "Cancel").count(), 0);
  await page.goto(`${readOnly}/ui/queue?name=mail`);
  await heading(page, "Queue mail");
  assert.equal(await button(page, "Pause queue").count(), 0);
  expectFailures();
  const sent = await page.evaluate(async (queue) => {
    const body = new URLSearchParams({ queue });
    return (await fetch("/ui/do/pauseQueue", { method: "POST", body })).status;
  }, "mail");
  assert.equal(sent, 403);
  assert.equal((await open("GET", "/queues/mail")).settings.paused, false);
  await done();
});

await end();
