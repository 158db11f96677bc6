// Follows changes of the page, and makes what the page can do already quicker. Without it everything works, by links and forms.
"use strict";

const body = document.body;
const root = document.documentElement;
const base = body.dataset.base;
const policy = globalThis.trustedTypes?.createPolicy("ganger", { createHTML: (html) => html });
const trusted = (html) => (policy ? policy.createHTML(html) : html);
const byId = (id) => document.getElementById(id);
const parse = (html) => new DOMParser().parseFromString(trusted(html), "text/html");
root.classList.add("js");
// Choices kept in this browser. It may allow none.
const keep = (store, name, value) => {
  try {
    return value === undefined ? globalThis[store].getItem(name) : globalThis[store].setItem(name, value);
  } catch {
    return null;
  }
};

// --- Theme and zone ---
const theme = byId("theme");
const applyTheme = (name) => (name === "light" || name === "dark" ? (root.dataset.theme = name) : delete root.dataset.theme);
applyTheme(keep("localStorage", "ganger-theme"));
if (theme) {
  theme.value = keep("localStorage", "ganger-theme") || "system";
  theme.addEventListener("change", () => {
    keep("localStorage", "ganger-theme", theme.value);
    applyTheme(theme.value);
  });
}
const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
const known = byId("zone");
if (zone && known && known.textContent !== zone && !document.cookie.includes(`ganger_zone=${zone}`)) {
  document.cookie = `ganger_zone=${zone}; path=${base}; max-age=31536000; samesite=strict`;
  if (document.cookie.includes(`ganger_zone=${zone}`)) location.reload();
}

// --- Times: measured from the server's clock ---
let ahead = 0;
const setClock = (now) => now && (ahead = Date.parse(now) - Date.now());
setClock(body.dataset.now);
const units = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
const one = (seconds) => {
  const [size, word] = units.find(([size]) => seconds >= size) || [1, "s"];
  return `${Math.floor(seconds / size).toLocaleString("en-US")} ${word}`;
};
const two = (seconds) => {
  const at = units.findIndex(([size]) => seconds >= size);
  if (at < 0 || at === 3) return one(seconds);
  const [size, word] = units[at];
  const [less, lessWord] = units[at + 1];
  const rest = Math.floor((seconds % size) / less);
  return `${Math.floor(seconds / size).toLocaleString("en-US")} ${word}${rest ? ` ${rest} ${lessWord}` : ""}`;
};
const freshen = (within) => {
  const now = Date.now() + ahead;
  for (const time of within.querySelectorAll("time[data-fresh]")) {
    const seconds = Math.trunc((now - Date.parse(time.dateTime)) / 1000);
    const text = time.dataset.fresh === "since" ? two(Math.max(seconds, 0)) : seconds > 0 ? `${one(seconds)} ago` : seconds < 0 ? `in ${one(-seconds)}` : "now";
    if (time.textContent !== text) time.textContent = text;
  }
};

// --- Live ---
const state = byId("live-state");
const pauseButton = byId("live-pause");
let stream = null;
let [opened, heard, retries, timer, poll, word] = [0, 0, 0, 0, 0, Date.now()];
let paused = keep("sessionStorage", "ganger-paused") === "1";
const clock = (at = Date.now()) => new Date(at + ahead).toLocaleTimeString("en-GB", zone ? { timeZone: zone } : {});

const show = (text, kind) => {
  if (!state) return;
  if (state.textContent !== text) state.textContent = text;
  state.dataset.state = kind;
  byId("live-reload").hidden = kind === "live" || kind === "paused";
};

// A log follows its end until somebody scrolls up.
const isAtEnd = (part) => {
  const log = part.querySelector("[data-follow]");
  return !log || log.scrollTop + log.clientHeight >= log.scrollHeight - 20;
};
const toEnd = (part) => part.querySelector("[data-follow]")?.scrollTo(0, Number.MAX_SAFE_INTEGER);

// The rows of a tail stay when newer ones come: as many as its table says, the oldest go.
const keepRows = (part, fresh) => {
  const [old, now] = [part, fresh].map((within) => within.querySelector("tbody[data-keep]"));
  if (!old || !now) return !!old;
  const known = new Map([...old.rows].map((row) => [row.id, row]));
  const rows = [...now.rows].reverse();
  let below = old.rows[0];
  if (!rows.some(({ id }) => known.has(id))) (below = old.insertRow(0)).insertCell().append("Events between these may be missing.");
  for (const row of rows) {
    const same = known.get(row.id);
    if (same?.textContent !== row.textContent) same ? same.replaceChildren(...row.childNodes) : old.insertBefore(row, below);
    below = same || row;
  }
  while (old.rows.length > old.dataset.keep) old.deleteRow(-1);
  return true;
};

const replace = ({ id, print, html }) => {
  const part = byId(id);
  if (!part) return;
  const fresh = parse(html).body;
  if (keepRows(part, fresh)) return (part.dataset.print = print);
  const at = document.activeElement;
  const follows = isAtEnd(part);
  const checked = new Set([...part.querySelectorAll("input[name=job]:checked")].map((box) => box.value));
  Idiomorph.morph(part, [...fresh.childNodes], {
    morphStyle: "innerHTML",
    ignoreActiveValue: true,
    callbacks: {
      // What somebody has opened or is filling in stays as it is.
      beforeAttributeUpdated: (name, node) => !(name === "open" && node.tagName === "DETAILS") && !(node.tagName === "INPUT" && (name === "checked" || name === "value")),
      beforeNodeMorphed: (node) => !(node.tagName === "FORM" && node.contains(at) && at !== body),
    },
  });
  part.dataset.print = print;
  for (const box of part.querySelectorAll("input[name=job]")) box.checked = checked.has(box.value);
  freshen(part);
  countSelected();
  if (follows) toEnd(part);
};

const newVersion = (assets) => {
  if (!assets || assets === body.dataset.assets) return false;
  const isBusy = document.querySelector("dialog[open]") || document.activeElement?.closest("form:not(.search)");
  if (isBusy) show("A newer version is here.", "off");
  else location.reload();
  return true;
};

const address = () => {
  const seen = [...document.querySelectorAll(".part[data-print]")].map((part) => `${part.id}.${part.dataset.print}`);
  return `${body.dataset.live}&seen=${seen.join(",")}`;
};

const close = () => {
  stream?.close();
  stream = null;
  clearTimeout(timer);
  clearInterval(poll);
  poll = 0;
};

const again = () => {
  close();
  if (retries === 0) show("Reconnecting …", "off");
  else if (retries === 1) show(`Offline since ${clock()}`, "off");
  const pause = Math.min(500 * 2 ** retries, 15000) * (0.75 + Math.random() / 2);
  retries += 1;
  timer = setTimeout(open, pause);
};

// For those who get no stream, such as the seventh tab over HTTP/1.1.
const slowly = async () => {
  try {
    const answer = await fetch(`${address()}&once=1`, { headers: { accept: "application/json" } });
    if (!(answer.headers.get("content-type") || "").includes("json")) return location.reload();
    const { parts, assets, refusal } = await answer.json();
    if (newVersion(assets)) return;
    if (refusal) return show(refusal, "off");
    parts.forEach(replace);
    word = Date.now();
    show("Live, slowly", "live");
  } catch {
    show("Reconnecting …", "off");
  }
};

function open() {
  if (!body.dataset.live || paused || document.hidden) return;
  close();
  stream = new EventSource(address());
  opened = Date.now();
  heard = 0;
  const on = (name, act) => stream.addEventListener(name, (event) => {
    word = heard = Date.now();
    act(JSON.parse(event.data));
  });
  on("hello", ({ assets, now }) => {
    setClock(now);
    retries = 0;
    if (!newVersion(assets)) show("Live", "live");
  });
  on("part", replace);
  on("beat", ({ now }) => setClock(now));
  const end = (text) => (close(), show(text, "off"));
  on("full", ({ text }) => end(`Not live: ${text}`));
  on("signed-out", () => location.reload());
  on("fault", ({ text }) => end(text));
  stream.onerror = () => stream && again();
}

const setPaused = (to) => {
  paused = to;
  keep("sessionStorage", "ganger-paused", to ? "1" : "0");
  pauseButton.textContent = to ? "Resume live" : "Pause live";
  close();
  if (to) return show("Paused", "paused");
  retries = 0;
  show("Reconnecting …", "off");
  open();
};

if (body.dataset.live) {
  pauseButton.hidden = false;
  pauseButton.addEventListener("click", () => setPaused(!paused));
  paused ? setPaused(true) : open();
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : paused || open()));
  addEventListener("pagehide", close);
  setInterval(() => {
    freshen(document);
    const [stale, age] = [byId("stale"), Math.round((Date.now() - word) / 1000)];
    stale.hidden = state.dataset.state === "live" || age < 10;
    if (!stale.hidden) stale.textContent = `As of ${clock(word)}, ${age} s ago`;
    if (paused || document.hidden || !stream) return;
    const silent = Date.now() - (heard || opened);
    if ((!heard && silent > 5000) || silent > 30000) {
      close();
      slowly();
      poll = setInterval(slowly, 5000);
    }
  }, 1000);
}

// --- Dialogs: what a question would show as a page ---
const dialogOf = (content, opener) => {
  const dialog = document.createElement("dialog");
  dialog.append(...content);
  const heading = dialog.querySelector("h1, h2");
  if (heading) dialog.setAttribute("aria-labelledby", heading.id);
  dialog.addEventListener("close", () => (dialog.remove(), opener?.focus()));
  body.append(dialog);
  dialog.showModal();
  return dialog;
};

const ask = async (button, form) => {
  const data = new FormData(form, button);
  const answer = await fetch(button.formAction, { method: "POST", body: new URLSearchParams(data), redirect: "manual" });
  // It was done or refused at once: the notice waits for the next page.
  if (answer.type === "opaqueredirect") return location.reload();
  const page = parse(await answer.text());
  const question = [page.getElementById("question"), page.getElementById("ask")].filter(Boolean);
  const content = question.length ? question : [...page.querySelector("main").children, closeButton()];
  const dialog = dialogOf(content.map((node) => document.adoptNode(node)), button);
  const back = dialog.querySelector("#question-back");
  back?.addEventListener("click", (event) => (event.preventDefault(), dialog.close()));
  back?.focus();
};

// An action whose answer is a question opens it here; any other goes the usual way.
const asks = ["cancelJob", "deleteJob", "timeOutJob", "retryJobs", "cancelJobs", "deleteJobs", "cancelGraph", "forgetQueue", "deleteSchedule", "releaseWorker", "reconcilePeer"];
document.addEventListener("submit", (event) => {
  const button = event.submitter;
  if (event.target.id !== "actions" || !button) return;
  const action = new URL(button.formAction).pathname.split("/").pop();
  if (!asks.includes(action) && !/(^|&)ask=1/.test(button.value)) return;
  event.preventDefault();
  ask(button, event.target).catch(() => show("Reconnecting …", "off"));
});

// --- Small things ---
document.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  const text = button.dataset.copy ?? (button.dataset.copyFrom && byId(button.dataset.copyFrom)?.textContent);
  if (text !== undefined && navigator.clipboard) navigator.clipboard.writeText(text.trim()).then(() => (button.textContent = "Copied"));
  if ("dismiss" in button.dataset) button.closest("[role]").remove();
  const secret = button.dataset.reveal && byId(button.dataset.reveal);
  if (secret) {
    secret.type = secret.type === "password" ? "text" : "password";
    button.textContent = secret.type === "password" ? "Show" : "Hide";
  }
  if (button.id === "help-button") help(button);
});
document.addEventListener("change", (event) => {
  if ("submit" in event.target.dataset) event.target.form.submit();
  if (event.target.name === "job") countSelected();
});
function countSelected() {
  const label = byId("selected-count");
  const number = document.querySelectorAll("input[name=job]:checked").length;
  if (label) label.textContent = `${number} selected:`;
}
document.querySelector("[data-focus]")?.focus();
countSelected();
byId("save-view")?.addEventListener("click", (event) => saved(event.currentTarget));

const element = (tag, text, more = {}) => Object.assign(document.createElement(tag), { textContent: text }, more);
const closeButton = () => {
  const actions = element("div", "", { className: "actions" });
  actions.append(element("button", "Close", { type: "button", autofocus: true, onclick: (event) => event.target.closest("dialog").close() }));
  return actions;
};

// The button that takes a log up again which somebody has scrolled away from its end.
const logPart = byId("part-log");
if (logPart) {
  const resume = element("button", "Follow", { type: "button", hidden: true, onclick: () => toEnd(logPart) });
  logPart.before(resume);
  logPart.addEventListener("scroll", () => (resume.hidden = isAtEnd(logPart)), true);
  toEnd(logPart);
}

// Saved views are addresses, kept in this browser only.
function saved(opener) {
  const views = JSON.parse(keep("localStorage", "ganger-views") || "[]");
  const list = element("ul", "");
  for (const { name, query } of views) {
    const item = element("li", "");
    item.append(element("a", name, { href: `${location.pathname}${query}` }));
    list.append(item);
  }
  const name = element("input", "", { name: "name", maxLength: 80 });
  const label = element("label", "Name of this view ");
  label.append(name);
  const save = element("button", "Save", { type: "button", onclick: () => {
    if (!name.value.trim()) return name.focus();
    const rest = views.filter((view) => view.name !== name.value.trim());
    keep("localStorage", "ganger-views", JSON.stringify([...rest, { name: name.value.trim(), query: location.search }].slice(-50)));
    save.closest("dialog").close();
  } });
  const file = element("textarea", "", { rows: 3, value: JSON.stringify(views) });
  const fileLabel = element("label", "Export, or import other views as JSON ");
  fileLabel.append(file);
  file.onchange = () => {
    try {
      keep("localStorage", "ganger-views", JSON.stringify(JSON.parse(file.value).map(({ name, query }) => ({ name: String(name), query: String(query) }))));
    } catch {
      file.setCustomValidity("This is not a list of views.");
      file.reportValidity();
    }
  };
  dialogOf([element("h2", "Saved views", { id: "dialog-heading" }), list, label, save, fileLabel, closeButton()], opener);
}

// --- Keyboard ---
const sections = document.querySelectorAll(".side a[data-key]");
const keys = [["?", "help"], ["/", "search"], ["g, then a letter", "a page of the navigation"], ["p", "pause or resume live"], ["j, k", "next, previous row"], ["Enter", "open the row"], ["x", "select the row"], ["r, c, d", "retry, cancel, delete what is selected"], ["n, b", "older, newer page"], ["1 to 5", "views of a job"], ["Esc", "close, clear the selection"]];
function help(opener) {
  const table = element("table", "");
  const letters = [...sections].map((link) => [`g ${link.dataset.key}`, link.textContent]);
  for (const [key, does] of [...keys, ...letters]) {
    const row = table.insertRow();
    row.append(element("th", "", { scope: "row" }), element("td", does));
    row.cells[0].append(element("kbd", key));
  }
  const off = element("input", "", { type: "checkbox", checked: keep("localStorage", "ganger-keys") === "off" });
  off.onchange = () => keep("localStorage", "ganger-keys", off.checked ? "off" : "on");
  const label = element("label", " Switch single keys off", { className: "check" });
  label.prepend(off);
  dialogOf([element("h2", "Keys", { id: "dialog-heading" }), table, label, closeButton()], opener || byId("help-button"));
}
let leads = false;
const rows = () => [...document.querySelectorAll("tr[data-row]")];
const step = (by) => {
  const all = rows();
  const at = all.findIndex((row) => row.contains(document.activeElement));
  const to = all[Math.min(Math.max(at + by, 0), all.length - 1)];
  to?.querySelector("th a, a, input")?.focus();
};
const selected = () => document.activeElement?.closest("tr")?.querySelector("input[name=job]");
const press = (action) => document.querySelector(`.bulk button[formaction$="/${action}"]`)?.click();
document.addEventListener("keydown", (event) => {
  const { key, target } = event;
  if (event.ctrlKey || event.altKey || event.metaKey || keep("localStorage", "ganger-keys") === "off") return;
  const writes = target.closest("input:not([type=checkbox]), select, textarea, [contenteditable]");
  if (writes || document.querySelector("dialog[open]")) return;
  const led = leads;
  leads = false;
  const acts = {
    "?": () => help(), "/": () => byId("search")?.focus(), g: () => (leads = true), p: () => body.dataset.live && setPaused(!paused),
    j: () => step(1), k: () => step(-1), r: () => press("retryJobs"), c: () => press("cancelJobs"), d: () => press("deleteJobs"),
    n: () => document.querySelector("[data-page=older]")?.click(), b: () => document.querySelector("[data-page=newer]")?.click(),
    x: () => selected()?.click(),
    X: () => {
      const all = rows();
      const end = all.findIndex((row) => row.contains(document.activeElement));
      const from = all.findLastIndex((row, at) => at < end && row.querySelector("input[name=job]:checked"));
      all.slice(Math.max(from, 0), end + 1).forEach((row) => (row.querySelector("input[name=job]").checked = true));
      countSelected();
    },
    Escape: () => {
      document.querySelectorAll("input[name=job]:checked").forEach((box) => (box.checked = false));
      countSelected();
    },
  };
  const tab = "12345".includes(key) && document.querySelectorAll('.tabs[aria-label="Views of the job"] a')[key - 1];
  const section = led && [...sections].find((link) => link.dataset.key === key);
  const act = section ? () => section.click() : tab ? () => tab.click() : acts[key];
  if (!act) return;
  event.preventDefault();
  act();
});
