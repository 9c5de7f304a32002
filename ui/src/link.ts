// The connection of this tab: its bearer, its calls, and its stream by the worker.
import { signal } from "@preact/signals";
import { Closed, Feed, lost, Said, said, type ToTab, type ToWorker } from "./feed";
import { take } from "./store";
import type { About } from "./types";

const place = "tutti.bearer"; // in sessionStorage, which belongs to this tab and to this port

export const about = signal<About | null>(null);
// ready is true when this tab has a bearer, so screens may ask the server.
export const ready = signal(false);
// shut says why this tab has no connection at all.
export const shut = signal("");
// trouble says why the stream does not go on. The views on the screen are old then.
export const trouble = signal("");

let bearer = "";
let tell: (m: ToWorker) => void = () => {};

const post = (path: string, body: unknown, secret: string, signal?: AbortSignal): Promise<Response> =>
  fetch(path, {
    method: "POST", body: JSON.stringify(body), credentials: "omit", referrerPolicy: "no-referrer", signal: signal ?? null,
    headers: { "Content-Type": "application/json", ...(secret ? { Authorization: "Bearer " + secret } : {}) },
  });

// call asks the server. An error has the sentence of the server.
export const call = async <Out>(name: string, input: unknown, signal?: AbortSignal): Promise<Out> => {
  let answer: Response;
  try {
    answer = await post("/v1/" + name, input, bearer, signal);
  } catch {
    throw new Said(lost);
  }
  if (!answer.ok) throw await said(answer);
  return (await answer.json()) as Out;
};

const closeTab = (why: string): void => {
  sessionStorage.removeItem(place);
  shut.value = why;
};

const hear = (m: ToTab): void => {
  switch (m.kind) {
    case "views":
      if (m.at) trouble.value = "";
      take(m);
      break;
    case "error":
      trouble.value = m.message;
      if (m.closed) closeTab(m.message);
  }
};

// connect finds the bearer, from the address, from this tab, or from another tab.
export const connect = async (): Promise<void> => {
  const given = new URLSearchParams(location.hash.slice(1)).get("code");
  if (given !== null) history.replaceState(null, "", location.pathname + location.search);
  const port = startWorker();
  bearer = sessionStorage.getItem(place) ?? "";
  let why = "this page has no connection; run \"tutti ui\" on this machine";
  if (given !== null) {
    try {
      const answer = await post("/door/exchange", { code: given }, "");
      if (answer.ok) bearer = ((await answer.json()) as { bearer: string }).bearer;
      else why = (await said(answer)).message;
    } catch {
      why = lost;
    }
  }
  if (!bearer && port) bearer = await askTabs(port);
  if (!bearer) return closeTab(why);
  try {
    const answer = await post("/door/about", {}, bearer);
    if (!answer.ok) throw await said(answer);
    about.value = (await answer.json()) as About;
  } catch (e) {
    if (e instanceof Closed || given !== null) return closeTab(e instanceof Said ? e.message : lost);
    trouble.value = e instanceof Said ? e.message : lost;
  }
  sessionStorage.setItem(place, bearer);
  ready.value = true;
  follow(port);
};

const follow = (port: MessagePort | undefined): void => {
  if (!port) {
    const feed = new Feed(hear);
    const look = (): void => (document.hidden ? feed.stop() : feed.start(bearer));
    tell = (m) => { if (m.kind === "retry") feed.retry(); };
    document.addEventListener("visibilitychange", look);
    return look();
  }
  tell = (m) => port.postMessage(m);
  port.onmessage = (m: MessageEvent<ToTab>) => hear(m.data);
  const seen = (): void => tell({ kind: "seen", visible: !document.hidden });
  tell({ kind: "hello", bearer });
  seen();
  setInterval(seen, 20_000);
  document.addEventListener("visibilitychange", seen);
  addEventListener("pagehide", () => tell({ kind: "bye" }));
  addEventListener("pageshow", (e) => { if (e.persisted) tell({ kind: "hello", bearer }); });
};

export const retry = (): void => tell({ kind: "retry" });

// The browser takes the address of a worker only from this policy, and the policy knows one address.
interface Policies { createPolicy(name: string, rules: { createScriptURL: () => string }): { createScriptURL(text: string): string } }

const startWorker = (): MessagePort | undefined => {
  if (typeof SharedWorker === "undefined") return undefined;
  const own = "/ui/worker.js";
  const policies = (globalThis as unknown as { trustedTypes?: Policies }).trustedTypes;
  const url = policies ? policies.createPolicy("tutti", { createScriptURL: () => own }).createScriptURL(own) : own;
  try {
    const { port } = new SharedWorker(url, { name: "tutti" });
    port.start();
    return port;
  } catch {
    return undefined;
  }
};

const askTabs = (port: MessagePort): Promise<string> =>
  new Promise((done) => {
    const late = setTimeout(() => done(""), 2_000);
    port.onmessage = (m: MessageEvent<ToTab>) => {
      if (m.data.kind !== "bearer") return;
      clearTimeout(late);
      done(m.data.bearer);
    };
    port.postMessage({ kind: "ask" } satisfies ToWorker);
  });
