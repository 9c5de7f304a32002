// One worker has the one stream of all tabs, because a browser has only six connections to one address.
import { Feed, type ToTab, type ToWorker } from "./feed";

interface Tab { visible: boolean; heard: number }

const gone = 90_000; // a tab says every 20 seconds that somebody can see it
const unseen = 60_000;

const tabs = new Map<MessagePort, Tab>();
let bearer = "";
let seenAt = Date.now();
const feed = new Feed((m) => {
  if (m.kind === "error" && m.closed) bearer = "";
  for (const port of tabs.keys()) port.postMessage(m);
});

const say = (port: MessagePort, m: ToTab): void => port.postMessage(m);

const look = (): void => {
  const now = Date.now();
  for (const [port, tab] of tabs) if (tab.visible && now - tab.heard > gone) tabs.delete(port);
  if ([...tabs.values()].some((t) => t.visible)) seenAt = now;
  if (bearer && now - seenAt < unseen) feed.start(bearer);
  else feed.stop(); // nobody looks, so the door may find that it is unused
};
setInterval(look, 15_000);

const hear = (port: MessagePort, m: ToWorker): void => {
  const tab = tabs.get(port) ?? { visible: true, heard: 0 };
  tab.heard = Date.now();
  tabs.set(port, tab);
  switch (m.kind) {
    case "hello":
      if (m.bearer !== bearer) { bearer = m.bearer; feed.stop(); }
      say(port, feed.everything());
      break;
    case "ask":
      say(port, { kind: "bearer", bearer });
      break;
    case "seen":
      tab.visible = m.visible;
      break;
    case "retry":
      feed.retry();
      break;
    case "bye":
      tabs.delete(port);
  }
  look();
};

(globalThis as unknown as { onconnect: (e: MessageEvent) => void }).onconnect = (e) => {
  const port = e.ports[0];
  if (port) port.onmessage = (m: MessageEvent<ToWorker>) => hear(port, m.data);
};
